package image

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// addProgram puts a program and every shared library that it needs into the
// tree. Libraries are found by reading the files, never by running anything.
func (t tree) addProgram(root, from, name string, arch string) error {
	src := filepath.Join(root, from)
	t.copy(name, src, 0o755)
	return t.addLibraries(root, src, arch)
}

func (t tree) addLibraries(root, file, arch string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	if want := machines[arch].elf; f.Machine != want {
		return fmt.Errorf("%s is for %v, the image is for %v", file, f.Machine, want)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, lib := range needed {
		if err := t.addLibrary(root, lib, arch); err != nil {
			return fmt.Errorf("%s needs %w", filepath.Base(file), err)
		}
	}
	return nil
}

// addLibrary puts a library by its soname where the dynamic loader looks.
func (t tree) addLibrary(root, lib, arch string) error {
	m := machines[arch]
	name := filepath.Join("lib", m.triplet, lib)
	if lib == filepath.Base(m.loader) {
		name = m.loader
	}
	if _, ok := t[name]; ok {
		return nil
	}
	for _, d := range []string{"lib/" + m.triplet, "usr/lib/" + m.triplet, "lib", "usr/lib", filepath.Dir(m.loader)} {
		p := filepath.Join(root, d, lib)
		real, err := within(root, p)
		if err != nil {
			continue
		}
		t.copy(name, real, 0o755)
		return t.addLibraries(root, real, arch)
	}
	return fmt.Errorf("%s, which is in none of the packages", lib)
}

// within follows links as if root were "/": a package's links may be absolute.
func within(root, p string) (string, error) {
	for range 16 {
		st, err := os.Lstat(p)
		if err != nil {
			return "", err
		}
		if st.Mode()&os.ModeSymlink == 0 {
			return p, nil
		}
		to, err := os.Readlink(p)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(to) {
			p = filepath.Join(root, to)
		} else {
			p = filepath.Join(filepath.Dir(p), to)
		}
	}
	return "", fmt.Errorf("%s: too many links", p)
}

// machines tells what differs between architectures.
var machines = map[string]struct {
	elf     elf.Machine
	triplet string // Debian's library directory
	loader  string // where the dynamic loader must be
	serial  string // the first serial line
	zfs     string // what Options.ZFS is by default
}{
	"amd64": {elf.EM_X86_64, "x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2", "ttyS0", "fuse"},
	"arm64": {elf.EM_AARCH64, "aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1", "ttyAMA0", "none"},
}

// checkStatic refuses a program that cannot be init of an empty system.
func checkStatic(file, arch string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	if want := machines[arch].elf; f.Machine != want {
		return fmt.Errorf("%s is for %v, the image is for %v", file, f.Machine, want)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("%s is not a static program; build it with CGO_ENABLED=0", file)
	}
	return nil
}
