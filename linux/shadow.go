package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"muster.internal/durable"
)

// NoPassword is in place of a hash where no password is right.
const NoPassword = "*"

// SetRootPassword puts a crypt(3) hash into the shadow file below etc, in place
// of root's own and of nobody else's. The file's owner, group and mode stay.
func SetRootPassword(etc, hash string) error {
	if hash == "" || strings.ContainsAny(hash, ": \t\r\n") {
		return errors.New("this is no crypt(3) hash")
	}
	name := filepath.Join(etc, "shadow")
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the shadow file cannot be read: %w", err)
	}
	lines, found := []string{}, false
	for _, l := range strings.Split(strings.TrimSuffix(string(old), "\n"), "\n") {
		fields := strings.Split(l, ":")
		if fields[0] == "root" && len(fields) > 1 {
			fields[1], found = hash, true
			l = strings.Join(fields, ":")
		}
		if l != "" {
			lines = append(lines, l)
		}
	}
	if !found {
		lines = append([]string{"root:" + hash + ":19000:0:99999:7:::"}, lines...)
	}
	text := strings.Join(lines, "\n") + "\n"
	if text == string(old) {
		return nil
	}
	if err := replaceLike(name, []byte(text), 0o600); err != nil {
		return fmt.Errorf("the shadow file cannot be written: %w", err)
	}
	return nil
}

// replaceLike replaces a file by one with the same owner, group and mode, but
// none that everybody can read, or by root's with this mode where there was none.
func replaceLike(name string, content []byte, mode fs.FileMode) error {
	owner, group := 0, 0
	if st, err := os.Lstat(name); err == nil && st.Mode().IsRegular() {
		s := st.Sys().(*syscall.Stat_t)
		mode, owner, group = st.Mode().Perm()&0o640, int(s.Uid), int(s.Gid)
	}
	if err := durable.Replace(name, content, 0o600); err != nil {
		return err
	}
	if owner != os.Geteuid() || group != os.Getegid() {
		if err := os.Lchown(name, owner, group); err != nil {
			return err
		}
	}
	return os.Chmod(name, mode)
}
