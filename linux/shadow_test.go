package linux

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSetRootPassword(t *testing.T) {
	for name, c := range map[string]struct{ old, want string }{
		"root's is replaced":   {"daemon:*:1:0:9:7:::\nroot:!:19000:0:99999:7:::\nx:y\n", "daemon:*:1:0:9:7:::\nroot:$6$s$h:19000:0:99999:7:::\nx:y\n"},
		"there is no root":     {"daemon:*:1:0:9:7:::\n", "root:$6$s$h:19000:0:99999:7:::\ndaemon:*:1:0:9:7:::\n"},
		"there is no file":     {"", "root:$6$s$h:19000:0:99999:7:::\n"},
		"not one who is alike": {"rooty:!:1\n", "root:$6$s$h:19000:0:99999:7:::\nrooty:!:1\n"},
	} {
		dir := t.TempDir()
		file, mode := filepath.Join(dir, "shadow"), os.FileMode(0o600)
		if c.old != "" {
			mode = 0o640
			if err := os.WriteFile(file, []byte(c.old), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := SetRootPassword(dir, "$6$s$h"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := os.ReadFile(file)
		info, _ := os.Stat(file)
		if err != nil || string(got) != c.want || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v\n%s", name, err, info.Mode(), got)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s: %d files are left", name, len(left))
		}
	}
	for _, bad := range []string{"", "a:b", "a\nb"} {
		if SetRootPassword(t.TempDir(), bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
