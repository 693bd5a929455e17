package muster_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The architecture is in ARCHITECTURE.md; this file holds the build to it.

const module = "muster.internal"

// pure are the packages that decide and do nothing: no I/O, no clock, no dice,
// no goroutines.
var pure = []string{".", "dhcp", "tftp", "amqp", "lifecycle", "boot", "layout", "inventory", "setup", "ticket", "host", "sim", "explain", "capture", "audit", "resource", "module", "blueprint", "planner"}

// pureImports are what a pure package may import from outside this module. A
// name that ends in a slash stands for all below it.
var pureImports = []string{
	"bytes", "cmp", "context", "encoding/", "errors", "fmt", "hash/", "io", "iter", "maps", "math", "math/bits", "net/netip", "path",
	"container/", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/", "embed",
}

// alsoImports are exceptions, and why.
var alsoImports = map[string][]string{
	"audit":     {"bufio", "crypto/sha256"},                                                                                              // chains entries, of an export too
	"boot":      {"crypto/sha1"},                                                                                                         // the only hash that a SmartOS kernel knows
	"setup":     {"crypto/ecdh", "crypto/hmac", "crypto/hpke", "crypto/sha256", "crypto/subtle"},                                         // seals bundles; never crypto/rand itself
	"inventory": {"crypto/sha256"},                                                                                                       // derives UUIDs
	"resource":  {"crypto/sha256", "go.yaml.in/yaml/v3"},                                                                                 // contents appear as hashes; declarations by hand
	"sim":       {"math/rand/v2"},                                                                                                        // dice with a seed
	"planner":   {"crypto/sha256"},                                                                                                       // draws ids from seeds
	"ticket":    {"github.com/golang-jwt/jwt/v5"},                                                                                        // bytes and values; takes its time as an argument
	"capture":   {"bufio", "github.com/gopacket/gopacket", "github.com/gopacket/gopacket/layers", "github.com/gopacket/gopacket/pcapgo"}, // reads what it is handed
}

// effects are the functions of harmless packages that are not.
var effects = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"fmt":          {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"math/rand/v2": {"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "N", "Uint", "UintN", "Uint32", "Uint32N", "Uint64", "Uint64N", "Float32", "Float64", "NormFloat64", "ExpFloat64", "Perm", "Shuffle"},
	"context":      {"WithTimeout", "WithDeadline", "AfterFunc"},
}

// mustNotCarry is what a program must not link, even through others.
var mustNotCarry = map[string][]string{
	"cmd/muster-host":   {"database/sql", "html/template", "net/http/pprof", module + "/store", module + "/control", module + "/api"},
	"cmd/muster-booter": {"database/sql", module + "/store", module + "/control"},
}

// A pkg is a package as the check sees it, by its path below the module.
type pkg struct {
	path    string
	imports []string
	deps    []string // all that it links
	files   map[string]*ast.File
}

func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	floors, err := parseFloors(string(text))
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err := list()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range inspect(floors, pkgs) {
		t.Error(c)
	}
	t.Logf("%d packages, each on its floor", len(pkgs))
}

// list asks the go command for the module's packages.
func list() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var l struct {
			ImportPath, Dir        string
			GoFiles, Imports, Deps []string
		}
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		p := pkg{path: below(l.ImportPath), imports: l.Imports, deps: l.Deps, files: map[string]*ast.File{}}
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.files[name] = f
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// below is an import path as ARCHITECTURE.md writes it, and "" for a package
// of another module.
func below(path string) string {
	if path == module {
		return "."
	}
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	return rest
}

// parseFloors reads the block: a number and the packages on that floor a line.
func parseFloors(text string) (map[string]int, error) {
	_, block, ok := strings.Cut(text, "```floors\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		return nil, fmt.Errorf("ARCHITECTURE.md has no floors block")
	}
	floors := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
		words := strings.Fields(line)
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return nil, fmt.Errorf("floors: %q does not start with a number", line)
		}
		for _, p := range words[1:] {
			if _, twice := floors[p]; twice {
				return nil, fmt.Errorf("floors: %s is on two floors", p)
			}
			floors[p] = n
		}
	}
	return floors, nil
}

// inspect says everything that is against the architecture.
func inspect(floors map[string]int, pkgs []pkg) (complaints []string) {
	say := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	for _, p := range pkgs {
		floor, ok := floors[p.path]
		if !ok {
			say("%s is on no floor of ARCHITECTURE.md", p.path)
		}
		for _, i := range p.imports {
			if to := below(i); ok && to != "" && floors[to] >= floor {
				say("%s (floor %d) must not import %s (floor %d)", p.path, floor, to, floors[to])
			}
		}
		if slices.Contains(pure, p.path) {
			impure(p, say)
		}
		for _, bad := range mustNotCarry[p.path] {
			if slices.Contains(p.deps, bad) {
				say("%s must not carry %s", p.path, bad)
			}
		}
		documented(p, say)
	}
	for p := range floors {
		if !slices.ContainsFunc(pkgs, func(q pkg) bool { return q.path == p }) {
			say("ARCHITECTURE.md has %s on a floor, and there is no such package", p)
		}
	}
	slices.Sort(complaints)
	return complaints
}

// impure complains of imports and effects that a pure package must not have.
func impure(p pkg, say func(string, ...any)) {
	may := slices.Concat(pureImports, alsoImports[p.path])
	for _, i := range p.imports {
		if below(i) != "" {
			continue // a lower floor, and checked itself if it is pure
		}
		if !slices.ContainsFunc(may, func(m string) bool { return i == m || strings.HasSuffix(m, "/") && strings.HasPrefix(i, m) }) {
			say("%s is pure and must not import %s", p.path, i)
		}
	}
	for name, f := range p.files {
		imported := map[string]string{} // local name to path
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			local := path[strings.LastIndex(path, "/")+1:]
			if local == "v2" {
				local = "rand"
			}
			if i.Name != nil {
				local = i.Name.Name
			}
			imported[local] = path
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				say("%s is pure and must not start goroutines: %s", p.path, name)
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					say("%s is pure and must not call %s: %s", p.path, id.Name, name)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(effects[imported[x.Name]], n.Sel.Name) {
					say("%s is pure and must not use %s.%s: %s", p.path, x.Name, n.Sel.Name, name)
				}
			}
			return true
		})
	}
}

// documented complains unless exactly one file has the package comment.
func documented(p pkg, say func(string, ...any)) {
	var with []string
	for name, f := range p.files {
		if f.Doc != nil {
			with = append(with, name)
		}
	}
	slices.Sort(with)
	if len(with) != 1 {
		say("%s has %d package comments, not one: %s", p.path, len(with), strings.Join(with, ", "))
	}
}

// TestArchitectureIsChecked shows each complaint.
func TestArchitectureIsChecked(t *testing.T) {
	file := func(body string) map[string]*ast.File {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", body, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]*ast.File{"a.go": f}
	}
	const good = "// Package a is good.\npackage a\n"
	floors := map[string]int{"high": 2, "host": 1, "low": 1, "cmd/muster-host": 3}
	fine := []pkg{
		{"high", []string{"net/http", module + "/low"}, nil, file(good)},
		{"host", []string{"strings", "time"}, nil, file(good + "import \"time\"\nvar t time.Time\nfunc f() time.Duration { return time.Second }\n")},
		{"low", []string{"os"}, nil, file(good + "import \"time\"\nvar t = time.Now()\n")},
		{"cmd/muster-host", nil, []string{"net/http"}, file(good)},
	}
	for _, c := range []struct {
		name string
		bad  pkg
		want string
	}{
		{"nothing is wrong", fine[0], ""},
		{"no floor", pkg{"new", nil, nil, file(good)}, "new is on no floor of ARCHITECTURE.md"},
		{"up", pkg{"low", []string{module + "/high"}, nil, file(good)}, "low (floor 1) must not import high (floor 2)"},
		{"sideways", pkg{"low", []string{module + "/host"}, nil, file(good)}, "low (floor 1) must not import host (floor 1)"},
		{"impure import", pkg{"host", []string{"os"}, nil, file(good)}, "host is pure and must not import os"},
		{"impure crypto", pkg{"host", []string{"crypto/rand"}, nil, file(good)}, "host is pure and must not import crypto/rand"},
		{"foreign import", pkg{"host", []string{"example.com/x"}, nil, file(good)}, "host is pure and must not import example.com/x"},
		{"clock", pkg{"host", nil, nil, file(good + "import \"time\"\nvar t = time.Now()\n")}, "host is pure and must not use time.Now: a.go"},
		{"clock by another name", pkg{"host", nil, nil, file(good + "import clock \"time\"\nvar t = clock.Now\n")}, "host is pure and must not use clock.Now: a.go"},
		{"dice", pkg{"host", nil, nil, file(good + "import \"math/rand/v2\"\nvar n = rand.IntN(6)\n")}, "host is pure and must not use rand.IntN: a.go"},
		{"goroutine", pkg{"host", nil, nil, file(good + "func f() { go f() }\n")}, "host is pure and must not start goroutines: a.go"},
		{"printing", pkg{"host", nil, nil, file(good + "func f() { println() }\n")}, "host is pure and must not call println: a.go"},
		{"cargo", pkg{"cmd/muster-host", nil, []string{"fmt", "database/sql"}, file(good)}, "cmd/muster-host must not carry database/sql"},
		{"no comment", pkg{"low", nil, nil, file("package a\n")}, "low has 0 package comments, not one: "},
		{"two comments", pkg{"low", nil, nil, map[string]*ast.File{"a.go": file(good)["a.go"], "b.go": file(good)["a.go"]}}, "low has 2 package comments, not one: a.go, b.go"},
	} {
		pkgs := slices.DeleteFunc(slices.Clone(fine), func(p pkg) bool { return p.path == c.bad.path })
		if got := strings.Join(inspect(floors, append(pkgs, c.bad)), "\n"); got != c.want {
			t.Errorf("%s: complains of %q, want %q", c.name, got, c.want)
		}
	}
	if got := inspect(floors, fine[1:]); len(got) != 1 || got[0] != "ARCHITECTURE.md has high on a floor, and there is no such package" {
		t.Errorf("a floor without its package: %q", got)
	}
}

func TestFloors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"no block", "ARCHITECTURE.md has no floors block"},
		{"```floors\n1 a", "ARCHITECTURE.md has no floors block"},
		{"```floors\na b\n```", `floors: "a b" does not start with a number`},
		{"```floors\n1 a\n0 a\n```", "floors: a is on two floors"},
	} {
		if _, err := parseFloors(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	floors, err := parseFloors("# x\n```floors\n1 b c\n0 .\n```\n")
	if err != nil || floors["b"] != 1 || floors["c"] != 1 || floors["."] != 0 || len(floors) != 3 {
		t.Errorf("%v %v", floors, err)
	}
}
