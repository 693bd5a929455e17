package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"muster.internal/durable"
)

// SetRootPassword puts a crypt(3) hash into the shadow file below etc, in place
// of root's own and of nobody else's.
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
	if err := durable.Replace(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("the shadow file cannot be written: %w", err)
	}
	return nil
}
