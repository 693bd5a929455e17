package module_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"muster.internal/module"
)

// TestFleetPage: the examples of docs/fleet.md are modules, and its table has
// every field.
func TestFleetPage(t *testing.T) {
	text, err := os.ReadFile("../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	for i, m := range examples {
		if _, err := module.ParseDraft(fmt.Sprintf("example %d", i+1), []byte(m[1])); err != nil {
			t.Error(err)
		}
	}
	if len(examples) < 5 {
		t.Errorf("there are %d examples", len(examples))
	}
	for _, v := range []any{module.Module{}, module.Rule{}, module.Capacity{}, module.HandOver{}, module.Health{}, module.Hook{}} {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("the page says nothing of `%s`", name)
			}
		}
	}
}
