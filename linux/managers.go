package linux

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A manager is how one package manager is spoken to. None of the commands may
// ever ask anybody anything.
type manager struct {
	// list tells what is installed: versions, by name and by name:architecture.
	list func(root string) (map[string]string, error)
	// refresh fetches the lists of what there is.
	refresh []string
	// install puts a package on the machine, of one version or of any.
	install func(name, version string) []string
	// unknown is said when a package is not in the lists.
	unknown pattern
	// locked is said when another one is at work; locks are what it holds then.
	locked pattern
	locks  []string
	// broken is said when an earlier run was cut short, and repair ends it.
	broken pattern
	repair []string
	// environment is for all of its commands.
	environment []string
}

// A pattern is a regular expression for what a command says. It is compiled when
// a command has failed, which is seldom.
type pattern string

func (p pattern) in(output string) bool {
	return p != "" && regexp.MustCompile(string(p)).MatchString(output)
}

// aptGet never removes another package and keeps the machine's own
// configuration files. It waits for dpkg's lock by itself, a short while.
var aptGet = []string{"apt-get", "-q", "-y", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
	"-o", "DPkg::Lock::Timeout=20", "-o", "APT::Color=0"}

// managers are those that the host knows, by the name in a profile.
var managers = map[string]*manager{
	"apt": {
		list:    readDpkg,
		refresh: append(slices.Clone(aptGet), "update"),
		install: func(name, version string) []string {
			command := append(slices.Clone(aptGet), "--no-remove")
			if version != "" {
				return append(command, "--allow-downgrades", "install", name+"="+version)
			}
			return append(command, "install", name)
		},
		unknown: `Unable to locate package|has no installation candidate|Version '.*' for '.*' was not found|Unable to fetch some archives`,
		locked:  `Could not get lock|Unable to (acquire|lock)|is another process using it|dpkg frontend lock`,
		locks:   []string{"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"},
		broken:  `dpkg was interrupted`,
		repair:  []string{"dpkg", "--configure", "-a", "--force-confdef", "--force-confold"},
		environment: []string{"DEBIAN_FRONTEND=noninteractive", "DEBIAN_PRIORITY=critical", "APT_LISTCHANGES_FRONTEND=none",
			"NEEDRESTART_SUSPEND=1"}, // it would restart services, and this host among them
	},
	"dnf": {
		list:    readRPM,
		refresh: []string{"dnf", "-q", "-y", "--setopt=exit_on_lock=True", "makecache", "--refresh"},
		install: func(name, version string) []string {
			return []string{"dnf", "-q", "-y", "--setopt=exit_on_lock=True", "install", joined(name, "-", version)}
		},
		unknown: `Unable to find a match|No match for argument`,
		locked:  `(?i)obtain the .*lock|lock already held|another app is currently holding|can't create transaction lock`,
		locks:   []string{"/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock", "/var/cache/dnf/metadata_lock.pid", "/var/lib/dnf/rpmdb_lock.pid"},
	},
	"pacman": {
		list:    readPacman,
		refresh: []string{"pacman", "-Sy", "--noconfirm", "--noprogressbar"},
		install: func(name, version string) []string {
			return []string{"pacman", "-S", "--noconfirm", "--noprogressbar", "--needed", joined(name, "=", version)}
		},
		unknown: `target not found|database file for '.*' does not exist|failed retrieving file`,
		locked:  `unable to lock database`,
		locks:   []string{"/var/lib/pacman/db.lck"},
	},
	"apk": {
		list:    readApk,
		refresh: []string{"apk", "--no-interactive", "--no-progress", "update"},
		install: func(name, version string) []string {
			return []string{"apk", "--no-interactive", "--no-progress", "add", joined(name, "=", version)}
		},
		unknown: `no such package|unable to select packages`,
		locked:  `Unable to lock database`,
		locks:   []string{"/lib/apk/db/lock"},
	},
}

func joined(name, by, version string) string {
	if version == "" {
		return name
	}
	return name + by + version
}

// readDpkg reads dpkg's own record. What is held, or chosen to go and still
// there, is installed; what was cut short is not. A plain name is the package of
// the machine's own architecture, which is dpkg's.
func readDpkg(root string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(root, "var/lib/dpkg/status"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseDpkg(f)
}

func parseDpkg(from io.Reader) (map[string]string, error) {
	all := map[string]string{}
	native := ""
	var name, arch, version string
	installed := false
	flush := func() {
		if installed && name != "" {
			all[name+":"+arch] = version
			if name == "dpkg" {
				native = arch
			}
		}
		name, arch, version, installed = "", "", "", false
	}
	in := bufio.NewReaderSize(from, 64<<10)
	for whole := true; ; {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 && whole {
			if len(bytes.TrimSpace(line)) == 0 {
				flush()
			} else if field, value, is := bytes.Cut(line, []byte(":")); is {
				switch value = bytes.TrimSpace(value); string(field) {
				case "Package":
					name = string(value)
				case "Architecture":
					arch = string(value)
				case "Version":
					version = string(value)
				case "Status":
					installed = bytes.HasSuffix(value, []byte(" ok installed"))
				}
			}
		}
		whole = err == nil // what follows a part of a long line is not a line
		if err == io.EOF {
			break
		}
		if err != nil && err != bufio.ErrBufferFull {
			return nil, err
		}
	}
	flush()
	for qualified, version := range all {
		if name, arch, _ := strings.Cut(qualified, ":"); arch == "all" || arch == native {
			all[name] = version
		}
	}
	return all, nil
}

// readRPM asks rpm, whose record only it can read. An epoch is spelled when
// there is one, as dnf wants it.
func readRPM(string) (map[string]string, error) {
	out, err := outputOf("rpm", "-qa", "--qf", `%{NAME} %{ARCH} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n`)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			all[f[0]], all[f[0]+"."+f[1]] = f[2], f[2]
		}
	}
	return all, nil
}

// readPacman reads the names of the directories in which pacman keeps one
// record each: NAME-VERSION-RELEASE.
func readPacman(root string) (map[string]string, error) {
	records, err := os.ReadDir(filepath.Join(root, "var/lib/pacman/local"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, r := range records {
		version := strings.LastIndexByte(r.Name()[:max(0, strings.LastIndexByte(r.Name(), '-'))], '-')
		if r.IsDir() && version > 0 {
			all[r.Name()[:version]] = r.Name()[version+1:]
		}
	}
	return all, nil
}

func readApk(root string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(root, "lib/apk/db/installed"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseApk(f)
}

// parseApk reads apk's own record: one letter, a colon and a value a line.
func parseApk(from io.Reader) (map[string]string, error) {
	all := map[string]string{}
	name := ""
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		switch field, value, _ := strings.Cut(in.Text(), ":"); field {
		case "P":
			name = value
		case "V":
			all[name] = value
		}
	}
	return all, in.Err()
}

// outputOf is all that a command that only reads says.
func outputOf(command ...string) (string, error) {
	out := &tail{most: 16 << 20}
	err := runTo(out, command, time.Minute, nil)
	if err != nil {
		return "", withOutput(fmt.Errorf("%s: %w", command[0], err), out.String())
	}
	return out.String(), nil
}
