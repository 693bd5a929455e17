//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
)

// packages are on every Debian machine.
var packages = strings.Fields("base-files bash coreutils dash debianutils diffutils dpkg findutils grep gzip hostname login mawk ncurses-base passwd perl-base sed sysvinit-utils tar util-linux")

// wanted is the state that all tools are told, each for a directory of its own.
type wanted struct {
	dir                string
	files, directories int
}

func (w wanted) root(tool string) string { return filepath.Join(w.dir, strings.ToLower(tool)) }

func (w wanted) file(root string, i int) string {
	return fmt.Sprintf("%s/d%d/f%d.conf", root, i%w.directories, i)
}

// content is that of a file, with its number as each tool writes it.
func content(number string) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "# file %s of those that are measured\n", number)
	for line := range 14 {
		fmt.Fprintf(b, "option_%02d = the value of line %02d in file %s, as declared\n", line, line, number)
	}
	return b.String()
}

// tools writes what each tool reads, and tells which are not installed.
func (w wanted) tools(host string) (tools []*tool, missing []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	at := func(name string) string { return filepath.Join(w.dir, name) }
	for _, t := range []struct {
		name, file, text string
		command          []string
	}{
		{"floor", "list", w.list(), []string{self, "-floor", at("list")}},
		{"muster-host", "declaration.json", w.declaration(), []string{host, "apply", at("declaration.json"), "--state", at("state")}},
		{"CFEngine", "policy.cf", w.policy(), []string{"cf-agent", "-K", "-f", at("policy.cf")}},
		{"Puppet", "site.pp", w.manifest(), []string{"puppet", "apply", "--confdir", at("puppet-conf"), "--vardir", at("puppet-var"), at("site.pp")}},
	} {
		if _, err := exec.LookPath(t.command[0]); err != nil {
			missing = append(missing, t.name)
			continue
		}
		if err := os.WriteFile(at(t.file), []byte(t.text), 0o600); err != nil {
			return nil, nil, err
		}
		tools = append(tools, &tool{name: t.name, command: t.command})
	}
	for name, text := range map[string]string{"cfengine.mustache": content("{{i}}"), "puppet.epp": "<%- | $i | -%>\n" + content("<%= $i %>")} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			return nil, nil, err
		}
	}
	return tools, missing, nil
}

// list is one path and content a line, directories without.
func (w wanted) list() string {
	b := new(strings.Builder)
	root := w.root("floor")
	for i := range w.directories {
		fmt.Fprintf(b, "%s/d%d\t\n", root, i)
	}
	for i := range w.files {
		fmt.Fprintf(b, "%s\t%s\n", w.file(root, i), strings.ReplaceAll(content(fmt.Sprint(i)), "\n", "\x00"))
	}
	return b.String()
}

func (w wanted) declaration() string {
	root := w.root("muster-host")
	type o = map[string]any
	all := []o{{"directory": o{"path": root}}}
	for i := range w.directories {
		all = append(all, o{"directory": o{"path": fmt.Sprintf("%s/d%d", root, i)}})
	}
	for i := range w.files {
		all = append(all, o{"file": o{"path": w.file(root, i), "content": content(fmt.Sprint(i))}})
	}
	for _, p := range packages {
		all = append(all, o{"package": o{"name": p}})
	}
	b, err := json.Marshal(o{"resources": all})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// policy asks dpkg once for all packages, which is the cheapest that CFEngine
// can be told.
func (w wanted) policy() string {
	var directories, files []string
	for i := range w.directories {
		directories = append(directories, fmt.Sprintf("%q", fmt.Sprint("d", i)))
	}
	for i := range w.files {
		files = append(files, fmt.Sprintf("\"d%d/f%d.conf\"", i%w.directories, i))
	}
	return fmt.Sprintf(`body common control { bundlesequence => { "main" }; }
body perms m(mode) { mode => "$(mode)"; }
bundle agent main
{
vars:
  "directories" slist => { %[1]s };
  "files" slist => { %[2]s };
  "template" string => readfile("%[3]s/cfengine.mustache", 0);
  "number[$(files)]" string => regex_replace("$(files)", "^.*/f([0-9]+)[.]conf$", "$1", "");
  "installed" string => execresult("/usr/bin/dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' %[4]s", "noshell");
files:
  "%[5]s/$(directories)/." create => "true", perms => m("755");
  "%[5]s/$(files)" create => "true", perms => m("644"),
    edit_template_string => "$(template)", template_method => "inline_mustache",
    template_data => parsejson('{"i":"$(number[$(files)])"}');
}
`, strings.Join(directories, ","), strings.Join(files, ","), w.dir, strings.Join(packages, " "), w.root("CFEngine"))
}

func (w wanted) manifest() string {
	return fmt.Sprintf(`file { '%[1]s': ensure => directory }
Integer[0, %[2]d].each |$d| { file { "%[1]s/d${d}": ensure => directory, mode => '0755' } }
Integer[0, %[3]d].each |$i| {
  $d = $i %% %[4]d
  file { "%[1]s/d${d}/f${i}.conf": ensure => file, mode => '0644', content => epp('%[5]s/puppet.epp', { 'i' => $i }) }
}
package { ['%[6]s']: ensure => installed }
`, w.root("Puppet"), w.directories-1, w.files-1, w.directories, w.dir, strings.Join(packages, "', '"))
}

// A phase is what a tool finds.
type phase int

const (
	first    phase = iota // nothing
	noChange              // all as wanted
	repair                // ten files changed
)

var phaseNames = []string{"first apply", "no change", "repair of ten"}

// A tool is one of those that are measured.
type tool struct {
	name    string
	command []string
	cpu     [3][]float64 // seconds, by phase
	wall    [3][]float64
	peak    int64 // bytes, of its largest process
}

// round measures each phase once, and sees to it that the tool did its work.
func (t *tool) round(w wanted) error {
	root := w.root(t.name)
	for _, dir := range []string{root, filepath.Join(w.dir, "state")} {
		// Not removed: ext4 searches long for inodes just after many were freed.
		gone := fmt.Sprintf("%s.gone%d", dir, len(t.cpu[first]))
		if err := os.Rename(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for p := first; p <= repair; p++ {
		for i := range 10 {
			if p == repair {
				if err := os.WriteFile(w.file(root, i*(w.files/10)), []byte("drift\n"), 0o644); err != nil {
					return err
				}
			}
		}
		if err := t.measure(p); err != nil {
			return err
		}
		if err := w.check(root); err != nil {
			return fmt.Errorf("after %s: %w", phaseNames[p], err)
		}
	}
	return nil
}

// check reads every file back.
func (w wanted) check(root string) error {
	for i := range w.files {
		b, err := os.ReadFile(w.file(root, i))
		if err != nil {
			return err
		}
		if string(bytes.TrimSpace(b)) != strings.TrimSpace(content(fmt.Sprint(i))) {
			return fmt.Errorf("%s is not as wanted", w.file(root, i))
		}
	}
	return nil
}

func (t *tool) measure(p phase) error {
	cmd := exec.Command(t.command[0], t.command[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := shrink(); err != nil {
		return err
	}
	took, err := timed(cmd.Run)
	if err != nil {
		return fmt.Errorf("%w: %.2000s", err, &out)
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.cpu[p] = append(t.cpu[p], (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	t.wall[p] = append(t.wall[p], took.Seconds())
	t.peak = max(t.peak, used.Maxrss<<10)
	return nil
}

// shrink makes this program's memory small and its peak be forgotten: the kernel
// counts that as the peak of what it starts, too.
func shrink() error {
	debug.FreeOSMemory()
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}
