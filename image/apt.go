package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// apt fetches packages without installing any: as any user, with lists of its
// own when the system's are missing, stale or for another architecture.
type apt struct {
	work string // cache directory
	arch string
	say  func(format string, args ...any)
	own  bool // lists of our own
	// archives are lines of sources.list made from what this system uses; empty
	// lists: what it uses, as it is.
	archives func(ctx context.Context) ([]string, error)
}

// A deb is a package file, downloaded and checked.
type deb struct{ name, version, file, sum string }

// fetch downloads the packages and, of what they depend on, the libraries.
// The kernel is a metapackage; which package it means today is returned too.
func (a *apt) fetch(ctx context.Context, kernel string, names []string) (debs []deb, kernelPackage string, err error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, "", fmt.Errorf("%s is not here: images are built from Debian packages, on Debian or a relative", tool)
		}
	}
	if a.arch != runtime.GOARCH || a.archives != nil {
		if err := a.update(ctx); err != nil {
			return nil, "", err
		}
	}
	debs, kernelPackage, err = a.tryFetch(ctx, kernel, names)
	if err == nil || a.own || ctx.Err() != nil {
		return debs, kernelPackage, err
	}
	a.say("the system's package lists do not serve (%v); fetching lists of our own", err)
	if err := a.update(ctx); err != nil {
		return nil, "", err
	}
	return a.tryFetch(ctx, kernel, names)
}

func (a *apt) tryFetch(ctx context.Context, meta string, names []string) ([]deb, string, error) {
	kernel, err := a.kernel(ctx, meta)
	if err != nil {
		return nil, "", err
	}
	all, err := a.closure(ctx, names)
	if err != nil {
		return nil, "", err
	}
	debs, err := a.download(ctx, append(all, kernel))
	return debs, kernel, err
}

// kernel returns the package that a kernel metapackage stands for today.
func (a *apt) kernel(ctx context.Context, meta string) (string, error) {
	deps, err := a.depends(ctx, meta)
	if err != nil {
		return "", err
	}
	for _, d := range deps {
		if strings.HasPrefix(d, "linux-image-") {
			return d, nil
		}
	}
	return "", fmt.Errorf("package %s depends on no linux-image package: %s", meta, strings.Join(deps, ", "))
}

// closure adds to the packages the libraries that they depend on, and those
// that these depend on; nothing else of what a package wants is for an initrd.
func (a *apt) closure(ctx context.Context, names []string) ([]string, error) {
	all, next := slices.Clone(names), names
	for len(next) > 0 {
		deps, err := a.depends(ctx, next...)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, d := range deps {
			library := strings.HasPrefix(d, "lib") || strings.HasPrefix(d, "zlib")
			if library && !slices.Contains(all, d) {
				all, next = append(all, d), append(next, d)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// depends lists what packages depend on, first alternatives only.
func (a *apt) depends(ctx context.Context, names ...string) ([]string, error) {
	out, err := a.run(ctx, "", "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", strings.Join(names, " "), err)
	}
	return parseDepends(out), nil
}

func parseDepends(record string) []string {
	var deps []string
	for line := range strings.Lines(record) {
		k, v, _ := strings.Cut(line, ": ")
		if k != "Depends" && k != "Pre-Depends" {
			continue
		}
		for d := range strings.SplitSeq(v, ",") {
			d, _, _ = strings.Cut(strings.TrimSpace(d), "|")
			d, _, _ = strings.Cut(strings.TrimSpace(d), " ")
			d, _, _ = strings.Cut(d, ":")
			if d != "" {
				deps = append(deps, d)
			}
		}
	}
	return deps
}

// uriLine is what `apt-get --print-uris` says of one package.
var uriLine = regexp.MustCompile(`^'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})$`)

func (a *apt) download(ctx context.Context, names []string) ([]deb, error) {
	dir := filepath.Join(a.work, "debs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Asked elsewhere: apt-get is silent about files that lie where it stands.
	out, err := a.run(ctx, a.work, "apt-get", append([]string{"download", "--print-uris"}, names...)...)
	if err != nil {
		return nil, err
	}
	debs, err := parseURIs(out, dir)
	if err != nil {
		return nil, err
	}
	if len(debs) != len(names) {
		return nil, fmt.Errorf("apt-get knows where %d of %d packages are: %s", len(debs), len(names), strings.Join(names, " "))
	}
	var want []string
	for _, d := range debs {
		if fileSum(d.file) != d.sum {
			want = append(want, d.name+"="+d.version)
		}
	}
	if len(want) == 0 {
		return debs, nil
	}
	a.say("downloading %d packages: %s", len(want), strings.Join(want, " "))
	if _, err := a.run(ctx, dir, "apt-get", append([]string{"download"}, want...)...); err != nil {
		return nil, err
	}
	for _, d := range debs {
		if got := fileSum(d.file); got != d.sum {
			return nil, fmt.Errorf("package file %s is not what the package list promises (SHA-256 %s, expected %s)", d.file, got, d.sum)
		}
	}
	return debs, nil
}

func parseURIs(out, dir string) ([]deb, error) {
	var debs []deb
	for line := range strings.Lines(out) {
		f := uriLine.FindStringSubmatch(strings.TrimSpace(line))
		if f == nil {
			continue
		}
		part := strings.SplitN(f[2], "_", 3)
		if len(part) != 3 || filepath.Base(f[2]) != f[2] {
			return nil, fmt.Errorf("apt-get names a package file %q", f[2])
		}
		version, err := url.PathUnescape(part[1])
		if err != nil {
			return nil, fmt.Errorf("apt-get names a package file %q", f[2])
		}
		debs = append(debs, deb{part[0], version, filepath.Join(dir, f[2]), f[4]})
	}
	slices.SortFunc(debs, func(x, y deb) int { return strings.Compare(x.name, y.name) })
	return debs, nil
}

func fileSum(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// unpack extracts the packages into one directory, which it returns: in the
// cache, and the same for the same packages.
func (a *apt) unpack(ctx context.Context, debs []deb) (string, error) {
	id := sha256.New()
	for _, d := range debs {
		fmt.Fprintln(id, d.sum)
	}
	root := filepath.Join(a.work, "root-"+hex.EncodeToString(id.Sum(nil))[:16])
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	a.say("unpacking %d packages", len(debs))
	tmp, err := os.MkdirTemp(a.work, "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, d := range debs {
		if _, err := a.run(ctx, "", "dpkg-deb", "-x", d.file, tmp); err != nil {
			return "", err
		}
	}
	if err := os.Rename(tmp, root); err != nil {
		if _, there := os.Stat(root); there == nil {
			return root, nil // another build was quicker
		}
		return "", err
	}
	return root, nil
}

// update fetches package lists of our own, and uses them from then on.
func (a *apt) update(ctx context.Context) error {
	a.own = true
	for _, d := range []string{"apt/state/lists/partial", "apt/cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.work, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(a.work, "apt/status"), nil, 0o644); err != nil {
		return err
	}
	if a.archives != nil {
		lines, err := a.archives(ctx)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(a.work, "apt/sources.list"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	if _, err := a.run(ctx, "", "apt-get", "update"); err != nil {
		return fmt.Errorf("no package lists (is there a network?): %w", err)
	}
	return nil
}

// versions lists what installing packages into an empty system would bring, one
// file a line.
func (a *apt) versions(ctx context.Context, names []string) (string, error) {
	nothing := filepath.Join(a.work, "nothing")
	if err := os.WriteFile(nothing, nil, 0o644); err != nil {
		return "", err
	}
	args := []string{"-o", "Dir::State::status=" + nothing, "install", "--print-uris", "--yes", "--no-install-recommends", "?essential", "?priority(required)", "apt"}
	out, err := a.run(ctx, "", "apt-get", append(args, names...)...)
	if err != nil {
		return "", err
	}
	var files []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 && strings.HasPrefix(line, "'") {
			files = append(files, f[1]+" "+f[3]+"\n")
		}
	}
	slices.Sort(files)
	return strings.Join(files, ""), nil
}

// sources are lines of sources.list for the distribution that this system is,
// or for its mirror that was named: its main component, and contrib for OpenZFS,
// which few systems list.
func (o Options) sources(ctx context.Context) ([]string, error) {
	components := "main"
	if o.ZFS == "openzfs" {
		components = "main contrib"
	}
	if o.Mirror != "" {
		suite, err := codename()
		return []string{"deb " + o.Mirror + " " + suite + " " + components}, err
	}
	lines, err := systemArchives(ctx, "deb $(REPO_URI) $(RELEASE) "+components, "Created-By: Packages", "Component: main", "Origin: Debian")
	if err == nil && len(lines) == 0 {
		err = errors.New("apt takes nothing from Debian on this system, or has no package lists: run apt-get update, or name a mirror")
	}
	return lines, err
}

// codename is the release that this system is (os-release(5)).
func codename() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", errors.New("/etc/os-release names no release of Debian")
}

// systemArchives lists what this system takes packages from, each line once.
func systemArchives(ctx context.Context, format string, which ...string) ([]string, error) {
	c := exec.CommandContext(ctx, "apt-get", append([]string{"indextargets", "--format", format}, which...)...)
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("asking apt which archives this system uses: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	return slices.DeleteFunc(slices.Compact(lines), func(l string) bool { return l == "" }), nil
}

// run runs a tool and returns what it printed; its complaints become the error.
func (a *apt) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	if strings.HasPrefix(tool, "apt-") {
		args = append(a.options(), args...)
	}
	c := exec.CommandContext(ctx, tool, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%s: %s (%w)", tool, firstComplaint(complaints.String()), err)
	}
	return out.String(), nil
}

func (a *apt) options() []string {
	o := []string{"-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3",
		// Parsed lists of our own: only root may keep the system's.
		"-o", "Dir::Cache::pkgcache=" + filepath.Join(a.work, a.arch+"-pkgcache.bin"),
		"-o", "Dir::Cache::srcpkgcache=" + filepath.Join(a.work, a.arch+"-srcpkgcache.bin")}
	if a.own {
		o = append(o, "-o", "APT::Architecture="+a.arch, "-o", "APT::Architectures="+a.arch,
			"-o", "Dir::State="+filepath.Join(a.work, "apt/state"),
			"-o", "Dir::State::status="+filepath.Join(a.work, "apt/status"),
			"-o", "Dir::Cache="+filepath.Join(a.work, "apt/cache"))
	}
	if a.archives != nil {
		o = append(o, "-o", "Dir::Etc::sourcelist="+filepath.Join(a.work, "apt/sources.list"), "-o", "Dir::Etc::sourceparts=-")
	}
	return o
}

func firstComplaint(s string) string {
	for line := range strings.Lines(s) {
		if l := strings.TrimSpace(line); strings.HasPrefix(l, "E: ") || strings.HasPrefix(l, "dpkg") {
			return strings.TrimPrefix(l, "E: ")
		}
	}
	s = strings.TrimSpace(s)
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}
