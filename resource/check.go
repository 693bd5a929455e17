package resource

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// forbidden is where no declaration reaches: the kernel's own file systems, and
// the host's state, which is no resource.
var forbidden = []string{"/proc", "/sys", "/dev", "/var/lib/muster-host"}

var (
	packageName   = shape{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._@:-]*$`), 128}
	versionText   = shape{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+:~_^-]*$`), 128}
	unitName      = shape{regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+$`), 255}
	containerName = shape{regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`), 128} // Docker's own rule
	actionName    = shape{regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`), 64}
	accountName   = shape{regexp.MustCompile(`^([a-z_][a-z0-9_.-]{0,31}\$?|[0-9]{1,10})$`), 33}
	variableName  = shape{regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`), MaxBytes}
	uuidText      = shape{regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), 36}
	valueName     = shape{regexp.MustCompile(`^[a-z][a-z0-9_.]*$`), 64}
	filesystems   = []string{"xfs", "ext4", "btrfs"}
	restarts      = []string{"", "no", "on-failure", "always", "unless-stopped"}
)

// A shape is what a word is made of, and how long it may be. The length is not
// in the expression, where each repetition costs memory in every process.
type shape struct {
	letters *regexp.Regexp
	most    int
}

func (s shape) fits(word string) bool { return len(word) <= s.most && s.letters.MatchString(word) }

// A finding is what is wrong with one field.
type finding func(field, format string, args ...any)

// Check says everything that is wrong with a declaration that was not parsed
// but decoded, and puts names in their full form. What is unread is not looked at.
func (d *Declaration) Check() error { return errors.Join(d.check()...) }

func (d *Declaration) check() (errs []error) {
	at := ""
	found := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s%s: %s", at, field, fmt.Sprintf(format, args...)))
	}
	if d.Generation < 0 {
		found("generation", "must not be negative")
	}
	if d.Confirm != "" {
		checkDuration(d.Confirm, maxConfirm, "confirm", found)
	}
	for name := range d.Values {
		if !valueName.fits(name) || slices.Contains(factNames, name) {
			found("values", "%q cannot be a name: small letters, digits, dots and underlines, and none of the facts", name)
		}
	}
	earlier := map[Ref]int{}
	paths := d.paths()
	for i := range d.Resources {
		r := &d.Resources[i]
		if kinds := r.kinds(); kinds != 1 && r.Unread == nil {
			at = d.place(i) + ": "
			found("kind", "it must be one of file, directory, package, service, container, action and disk, and is %d of them", kinds)
			continue
		}
		if r.Service != nil {
			r.Service.Name = unitOf(r.Service.Name)
		}
		at = d.place(i) + ": "
		r.check(d.Values, found)
		if first, twice := earlier[r.Ref()]; twice {
			found(keyField(r.Kind()), "resource %d is %s, too", first+1, r.Ref())
		} else if first := paths[r.Path()]; r.Path() != "" && first != i {
			found(keyField(r.Kind()), "resource %d is at this path, too", first+1)
		}
		d.checkRefs("after", r.After, i, earlier, found)
		d.checkRefs(string(r.Kind())+".restart_on", r.RestartOn(), i, earlier, found)
		d.checkPlace(i, paths, found)
		earlier[r.Ref()] = i
	}
	at = ""
	d.checkChecks(found)
	return errs
}

func (r *Resource) kinds() int {
	n := 0
	for _, is := range []bool{r.File != nil, r.Directory != nil, r.Package != nil, r.Service != nil, r.Container != nil, r.Action != nil, r.Disk != nil} {
		if is {
			n++
		}
	}
	return n
}

func keyField(k Kind) string {
	if k == KindFile || k == KindDirectory || k == KindDisk {
		return string(k) + ".path"
	}
	return string(k) + ".name"
}

// unitOf is the full name of a unit.
func unitOf(name string) string {
	if name == "" || strings.Contains(name, ".") {
		return name
	}
	return name + ".service"
}

// Path is where it is in the file system, if it is there.
func (r *Resource) Path() string {
	if k := r.Kind(); k == KindFile || k == KindDirectory || k == KindDisk {
		return r.Ref().Key()
	}
	return ""
}

// checkRefs sees that what it depends on comes before it.
func (d *Declaration) checkRefs(field string, refs []Ref, i int, earlier map[Ref]int, found finding) {
	for k, ref := range refs {
		if ref.Kind() == KindService {
			ref = NewRef(KindService, unitOf(ref.Key()))
			refs[k] = ref
		}
		if _, is := earlier[ref]; is {
			continue
		}
		if d.Find(ref) != nil {
			found(field, "%s comes later; put it first", ref)
		} else if err := ref.valid(); err != nil {
			found(field, "%v", err)
		} else {
			found(field, "there is no %s in this declaration", ref)
		}
	}
}

// paths are where its files and directories are; the first of two counts.
func (d *Declaration) paths() map[string]int {
	all := map[string]int{}
	for i := range d.Resources {
		p := d.Resources[i].Path()
		if _, twice := all[p]; !twice && p != "" {
			all[p] = i
		}
	}
	return all
}

// checkPlace sees that a path is not inside a file, nor before its directory.
func (d *Declaration) checkPlace(i int, paths map[string]int, found finding) {
	p := d.Resources[i].Path()
	if !path.IsAbs(p) {
		return
	}
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		k, declared := paths[dir]
		switch {
		case !declared:
		case d.Resources[k].Kind() == KindFile:
			found(keyField(d.Resources[i].Kind()), "it is inside of %s, which resource %d makes a file", dir, k+1)
		case k > i:
			found(keyField(d.Resources[i].Kind()), "its directory %s comes later, as resource %d; put it first", dir, k+1)
		}
	}
}

func (r *Resource) check(values map[string]string, found finding) {
	kind := string(r.Kind())
	in := func(field, format string, args ...any) { found(kind+"."+field, format, args...) }
	switch {
	case r.File != nil:
		r.File.check(values, in)
	case r.Directory != nil:
		checkPath(r.Directory.Path, in)
		checkAccess(r.Directory.Mode, r.Directory.Owner, r.Directory.Group, in)
	case r.Package != nil:
		checkWord(r.Package.Name, packageName, "name", "a package", in)
		if v := r.Package.Version; v != "" && !versionText.fits(v) {
			in("version", "%q is no version", v)
		}
	case r.Service != nil:
		checkWord(r.Service.Name, unitName, "name", "a unit", in)
	case r.Container != nil:
		r.Container.check(in)
	case r.Action != nil:
		r.Action.check(in)
		if r.Adopt {
			found("adopt", "an action leaves nothing that could be adopted")
		}
	case r.Disk != nil:
		r.Disk.check(in)
		if r.Adopt {
			found("adopt", "a disk that carries its id is the host's, and no other is touched")
		}
	}
	switch {
	case r.Resolve == "":
	case r.Resolve != ResolveTake && r.Resolve != ResolveKeep:
		found("resolve", "%q is neither take nor keep", r.Resolve)
	case !r.Adopt:
		found("resolve", "only what is adopted can be in a conflict: it needs \"adopt\": true")
	}
}

func checkWord(word string, shape shape, field, what string, found finding) {
	if !shape.fits(word) {
		found(field, "%q cannot be the name of %s", word, what)
	}
}

func (f *File) check(values map[string]string, found finding) {
	checkPath(f.Path, found)
	checkAccess(f.Mode, f.Owner, f.Group, found)
	if f.Content != "" && f.Template != "" {
		found("template", "a file has a content or a template, not both")
	}
	switch {
	case f.Source == "":
	case f.Content != "" || f.Template != "":
		found("source", "a file has a source, a content or a template, and only one of them")
	case path.IsAbs(f.Source) || path.Clean(f.Source) != f.Source || f.Source == "." || strings.HasPrefix(f.Source, ".."):
		found("source", "%q must be a plain path to a file beside the declaration", f.Source)
	}
	if err := checkTemplate(f.Template, values); err != nil {
		found("template", "%v", err)
	}
	if !f.Secret && usesGrant(f.Template) {
		found("secret", "its template uses a grant, so it must be \"secret\": true")
	}
}

func checkPath(p string, found finding) {
	switch {
	case p == "":
		found("path", "must be said")
	case !path.IsAbs(p):
		found("path", "%q must begin with /", p)
	case p == "/" || path.Clean(p) != p:
		found("path", "%q must be a plain path, without . or .. or a slash at its end", p)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		found("path", "%q has characters that cannot be printed", p)
	case len(p) > 4095:
		found("path", "is longer than 4095 bytes")
	default:
		for _, f := range forbidden {
			if p == f || strings.HasPrefix(p, f+"/") {
				found("path", "%s is not for declarations", f)
			}
		}
	}
}

func checkAccess(mode, owner, group string, found finding) {
	if mode != "" {
		if _, err := ParseMode(mode); err != nil {
			found("mode", "%v", err)
		}
	}
	for _, a := range []struct{ field, name string }{{"owner", owner}, {"group", group}} {
		if a.name != "" && !accountName.fits(a.name) {
			found(a.field, "%q cannot be the name or number of an account", a.name)
		}
	}
}

func checkDuration(s string, most time.Duration, field string, found finding) {
	if t, err := time.ParseDuration(s); err != nil || t < time.Second || t > most {
		found(field, "%q must be a time such as \"2m\", from 1s to %v", s, most)
	}
}

func (c *Container) check(found finding) {
	checkWord(c.Name, containerName, "name", "a container", found)
	if c.Image == "" || strings.ContainsFunc(c.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		found("image", "%q cannot be the name of an image", c.Image)
	}
	for name, value := range c.Environment {
		if !variableName.fits(name) || strings.ContainsRune(value, 0) {
			found("environment", "%q cannot be a variable", name)
		}
	}
	for i, m := range c.Mounts {
		for _, p := range []string{m.Source, m.Target} {
			if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, ":\x00") {
				found("mounts", "mount %d: %q must be a plain path that begins with /", i+1, p)
			}
		}
	}
	for i, p := range c.Ports {
		if p.Host < 1 || p.Host > 65535 || p.Container < 1 || p.Container > 65535 {
			found("ports", "port %d: host and container must be from 1 to 65535", i+1)
		}
		if !slices.Contains([]string{"", "tcp", "udp"}, p.Protocol) {
			found("ports", "port %d: protocol is tcp or udp, not %q", i+1, p.Protocol)
		}
	}
	if !slices.Contains(restarts, c.Restart) {
		found("restart", "is one of %s, not %q", strings.Join(restarts[1:], ", "), c.Restart)
	}
}

func (a *Action) check(found finding) {
	checkWord(a.Name, actionName, "name", "an action", found)
	if len(a.Command) == 0 || a.Command[0] == "" {
		found("command", "must be a program and its arguments, as a list")
	}
	if len(a.Unless) > 0 && a.Unless[0] == "" {
		found("unless", "must be a program and its arguments, as a list")
	}
	if a.Timeout != "" {
		checkDuration(a.Timeout, 24*time.Hour, "timeout", found)
	}
}

func (k *DataDisk) check(found finding) {
	if !uuidText.fits(k.ID) {
		found("id", "%q must be a UUID, in small letters", k.ID)
	}
	if kind, which, _ := strings.Cut(k.Identity, " "); kind != "wwn" && kind != "serial" || which == "" || len(k.Identity) > 300 {
		found("identity", "%q must be \"wwn …\" or \"serial …\", as muster inventory shows it", k.Identity)
	}
	checkPath(k.Path, found)
	if !slices.Contains(filesystems, k.Filesystem) {
		found("filesystem", "is one of %s, not %q", strings.Join(filesystems, ", "), k.Filesystem)
	}
}

// MaxChecks is how many checks a declaration may have.
const MaxChecks = 1000

func (d *Declaration) checkChecks(found finding) {
	if len(d.Checks) > MaxChecks {
		found("checks", "there are more than %d", MaxChecks)
	}
	seen := map[string]bool{}
	for i, c := range d.Checks {
		in := func(field, format string, args ...any) {
			found(fmt.Sprintf("check %d (%.64s): %s", i+1, c.ID, field), format, args...)
		}
		switch {
		case c.ID == "" || len(c.ID) > 64:
			in("id", "must be the placement's, at most 64 bytes")
		case seen[c.ID]:
			in("id", "is there twice")
		}
		seen[c.ID] = true
		CheckProbe(c.Port, c.Path, c.CaughtUp, in)
	}
}

// CheckProbe says what is wrong with how to see that something is up.
func CheckProbe(port int, path, caughtUp string, found func(field, format string, args ...any)) {
	if port < 1 || port > 65535 {
		found("port", "%d must be from 1 to 65535", port)
	}
	for _, p := range []struct{ field, path string }{{"path", path}, {"caught_up", caughtUp}} {
		if p.path != "" && (p.path[0] != '/' || len(p.path) > 1024 || strings.ContainsFunc(p.path, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
			found(p.field, "%q must be a path that begins with /", p.path)
		}
	}
}
