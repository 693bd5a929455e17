package resource

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const declarationsPage = "../docs/declarations.md"

// The page on declarations is true: its examples are declarations, its table is
// the code's, and no field is missing.
func TestDeclarationsPage(t *testing.T) {
	text, err := os.ReadFile(declarationsPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if _, err := Parse(fmt.Sprintf("example %d", i+1), []byte(m[1])); err != nil {
			t.Error(err)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile(`(?m)^ +resources:\n( +- .*\n)+`).FindString(string(readme))
	if d, err := Parse("README.md", []byte(example)); err != nil || len(d.Resources) != 3 {
		t.Errorf("%d resources in %q: %v", len(d.Resources), example, err)
	}
	for _, k := range []Kind{KindFile, KindDirectory, KindService, KindContainer, KindPackage, KindAction, KindDisk} {
		row := "| " + string(k)
		for _, o := range []Origin{OriginCreated, OriginAdopted, OriginFound} {
			row += " | " + string(Owned{Ref: NewRef(k, "x"), Origin: o}.Removal())
		}
		if !strings.Contains(page, row+" |\n") {
			t.Errorf("%s lacks the row %s |", declarationsPage, row)
		}
	}
	if facts := "`" + strings.Join(factNames, "`, `") + "`"; !strings.Contains(strings.ReplaceAll(page, "\n", " "), facts) {
		t.Errorf("%s lacks the facts %s", declarationsPage, facts)
	}
	for _, v := range []any{Declaration{}, Resource{}, File{}, Directory{}, Package{}, Service{}, Container{}, Mount{}, Port{}, Action{}, DataDisk{}, Check{}} {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if name != "-" && !regexp.MustCompile(`\b`+name+`\b`).MatchString(page) {
				t.Errorf("%s does not tell of %s of a %T", declarationsPage, name, v)
			}
		}
	}
}
