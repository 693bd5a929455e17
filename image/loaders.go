package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"muster.internal/boot"
)

// The release of Debian whose package ipxe is the first with loaders for arm64,
// and the package that muster is tested with. Debian 12's has none.
const (
	loadersRelease = "trixie"
	loadersVersion = "1.21.1+git20250501.dad20602+dfsg-1"
	loadersSum     = "eeaca79dbde0fb86c102bf1d362c6f6a67ed0ddab38b3dd12e1b332339f5dd99"
)

// debianKeys are what Debian signs its indexes with. A Debian 12 that is up to
// date has those of the next release too.
const debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// LoaderOptions say where boot loaders go.
type LoaderOptions struct {
	Dir      string    // made if need be
	Cache    string    // default: as for images
	Progress io.Writer // hears one line a step; default: nobody
}

// FetchLoaders takes iPXE's loaders, those for arm64 among them, out of a newer
// Debian's package without installing anything, and returns the files' names.
// The mirror is the one that this system's apt uses. The package is the tested
// one, checked against its pinned SHA-256; when the mirror no longer has that
// version, the release's present one is taken, checked against apt's index,
// whose signature apt has checked with this system's Debian keys.
func FetchLoaders(ctx context.Context, o LoaderOptions) ([]string, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	say := func(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }
	cache, err := cacheDir(o.Cache)
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "loaders") // other package lists than images have
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockCache(ctx, cache, say)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a := &apt{work: cache, arch: runtime.GOARCH, archives: newerDebian, say: say}
	d, err := a.loaders(ctx)
	if err != nil {
		return nil, err
	}
	root, err := a.unpack(ctx, []deb{d})
	if err != nil {
		return nil, err
	}
	names, err := copyLoaders(filepath.Join(root, "usr/lib/ipxe"), o.Dir)
	if err == nil {
		say("ipxe %s: %s are in %s", d.version, strings.Join(names, ", "), o.Dir)
	}
	return names, err
}

// loaders is the package file: kept from before, or fetched and checked.
func (a *apt) loaders(ctx context.Context) (deb, error) {
	kept := deb{"ipxe", loadersVersion, filepath.Join(a.work, "debs", "ipxe_"+loadersVersion+"_all.deb"), loadersSum}
	if fileSum(kept.file) == loadersSum {
		return kept, nil
	}
	if err := a.update(ctx); err != nil {
		return deb{}, err
	}
	debs, err := a.download(ctx, []string{"ipxe=" + loadersVersion})
	if err == nil {
		if debs[0].sum != loadersSum {
			return deb{}, fmt.Errorf("the mirror's ipxe %s has SHA-256 %s, not %s as the tested one: it is not used", loadersVersion, debs[0].sum, loadersSum)
		}
		return debs[0], nil
	}
	a.say("this mirror no longer has ipxe %s (%v); taking the present one of %s", loadersVersion, err, loadersRelease)
	if debs, err = a.download(ctx, []string{"ipxe"}); err != nil {
		return deb{}, err
	}
	return debs[0], nil
}

// newerDebian is the Debian archive that this system uses, of the release that
// has the loaders.
func newerDebian(ctx context.Context) ([]string, error) {
	lines, err := systemArchives(ctx, "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	var sources []string
	for _, l := range lines {
		f := strings.Split(strings.TrimSpace(l), "|")
		if len(f) != 3 || f[0] != "Debian" || f[1] != "Debian" {
			continue
		}
		signed := ""
		if _, err := os.Stat(debianKeys); err == nil {
			signed = "[signed-by=" + debianKeys + "] "
		}
		sources = append(sources, "deb "+signed+f[2]+" "+loadersRelease+" main\n")
	}
	if len(sources) == 0 {
		return nil, errors.New("apt uses no Debian archive on this system, or has no lists of it yet (apt-get update): put the loaders where muster-booter --ipxe points by hand")
	}
	return sources[:1], nil
}

// copyLoaders copies what a booter can serve; a file that is there is replaced
// in one step, since a booter may be serving it.
func copyLoaders(from, to string) ([]string, error) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for _, n := range boot.Loaders() {
		b, err := os.ReadFile(filepath.Join(from, n))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		tmp := filepath.Join(to, "."+n+".new")
		if err := errors.Join(os.WriteFile(tmp, b, 0o644), os.Rename(tmp, filepath.Join(to, n))); err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	for _, set := range boot.LoaderSets() {
		if !slices.ContainsFunc(set.Files, func(n string) bool { return slices.Contains(names, n) }) {
			return nil, fmt.Errorf("the package ipxe has no loader for %s", set.Arch)
		}
	}
	return names, nil
}
