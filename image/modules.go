package image

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ModulesFile lists, in an image, the kernel modules to load: one path a line,
// each after those that it needs.
const ModulesFile = "/modules.list"

// modules are a kernel package's loadable modules. What they need is read from
// the modules themselves (their .modinfo section), so that depmod is not.
type modules struct {
	dir     string            // lib/modules/VERSION
	path    map[string]string // by name, with underscores
	builtin map[string]bool
	alias   map[string]string // of ciphers and checksums only: what softdeps name
}

func moduleName(file string) string {
	n, _, _ := strings.Cut(filepath.Base(file), ".")
	return strings.ReplaceAll(n, "-", "_")
}

func readModules(dir string) (*modules, error) {
	m := &modules{dir: dir, path: map[string]string{}, builtin: map[string]bool{}, alias: map[string]string{}}
	err := filepath.WalkDir(filepath.Join(dir, "kernel"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.Contains(e.Name(), ".ko") {
			return err
		}
		m.path[moduleName(p)] = p
		if !strings.Contains(p, "/crypto/") && !strings.Contains(p, "/lib/") || !strings.HasSuffix(p, ".ko") {
			return nil
		}
		info, err := readModinfo(p)
		for _, a := range info["alias"] {
			if _, taken := m.alias[a]; !taken {
				m.alias[a] = moduleName(p)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the kernel's modules: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("the kernel's modules: %w", err)
	}
	for f := range strings.FieldsSeq(string(list)) {
		m.builtin[moduleName(f)] = true
	}
	return m, nil
}

// order returns the files of the wanted modules and of all that they need,
// each after what it needs; absent names what the kernel does not have.
func (m *modules) order(wanted []string) (files, absent []string, err error) {
	done := map[string]bool{}
	var visit func(name string, chain []string) error
	visit = func(name string, chain []string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if slices.Contains(chain, name) {
			return fmt.Errorf("modules need each other in a circle: %s", strings.Join(append(chain, name), " "))
		}
		if done[name] || m.builtin[name] {
			return nil
		}
		p, ok := m.path[name]
		if !ok {
			if len(chain) > 0 {
				return fmt.Errorf("module %s needs %s, which the kernel package lacks", chain[len(chain)-1], name)
			}
			absent = append(absent, name)
			return nil
		}
		done[name] = true
		info, err := readModinfo(p)
		if err != nil {
			return err
		}
		for _, d := range m.needs(info) {
			if err := visit(d, append(chain, name)); err != nil {
				return err
			}
		}
		files = append(files, p)
		return nil
	}
	for _, w := range wanted {
		if err := visit(w, nil); err != nil {
			return nil, nil, err
		}
	}
	return files, absent, nil
}

// needs lists a module's dependencies: hard ones, and those "soft" ones that
// it asks for before itself and that exist, since no modprobe will do it later.
func (m *modules) needs(info map[string][]string) []string {
	var ds []string
	for _, d := range info["softdep"] {
		pre := false
		for w := range strings.FieldsSeq(d) {
			switch {
			case strings.HasSuffix(w, ":"):
				pre = w == "pre:"
			case pre && m.path[strings.ReplaceAll(w, "-", "_")] != "":
				ds = append(ds, w)
			case pre && m.alias[w] != "":
				ds = append(ds, m.alias[w])
			}
		}
	}
	for _, d := range info["depends"] {
		ds = append(ds, strings.FieldsFunc(d, func(r rune) bool { return r == ',' })...)
	}
	return ds
}

// readModinfo reads the key=value strings of a module's .modinfo section.
func readModinfo(file string) (map[string][]string, error) {
	if !strings.HasSuffix(file, ".ko") {
		return nil, fmt.Errorf("%s is compressed: kernels with plain modules only (Debian 12)", file)
	}
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("%s: no .modinfo: not a kernel module", file)
	}
	raw, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	info := map[string][]string{}
	for line := range bytes.SplitSeq(raw, []byte{0}) {
		if k, v, ok := strings.Cut(string(line), "="); ok {
			info[k] = append(info[k], v)
		}
	}
	return info, nil
}
