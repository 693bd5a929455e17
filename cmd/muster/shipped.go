package main

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	muster "muster.internal"
	"muster.internal/module"
)

// shipped are modules that come with this program. They are added like any other,
// and are examples of how one is written.
//
//go:embed modules
var shipped embed.FS

// A shippedModule is one as it is listed: what is said of it before its first line.
type shippedModule struct {
	Name string `json:"module"`
	What string `json:"what"`
}

func shippedModules() ([]shippedModule, error) {
	files, err := fs.Glob(shipped, "modules/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []shippedModule
	for _, file := range files {
		text, err := shipped.ReadFile(file)
		if err != nil {
			return nil, err
		}
		what := ""
		for line := range strings.Lines(string(text)) {
			word, comment := strings.CutPrefix(line, "# ")
			if !comment {
				break
			}
			what += strings.TrimSpace(word) + " "
		}
		all = append(all, shippedModule{strings.TrimSuffix(path.Base(file), ".yaml"), strings.TrimSpace(what)})
	}
	return all, nil
}

func readShipped(name string) (module.Module, error) {
	text, err := shipped.ReadFile("modules/" + name + ".yaml")
	if err != nil {
		return module.Module{}, muster.Problemf(muster.CodeNotFound, "no module %s comes with this muster; muster module ls --shipped lists those that do", name)
	}
	return module.ParseDraft(name, text)
}

func (a *app) showShipped() error {
	all, err := shippedModules()
	if err != nil {
		return err
	}
	return a.show(all, func(w io.Writer) {
		for _, m := range all {
			fmt.Fprintf(w, "%s\n  %s\n", m.Name, m.What)
		}
	})
}
