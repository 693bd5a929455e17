package control

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"muster.internal"
	"muster.internal/durable"
)

// masterKey loads the key that encrypts what the store must be able to read
// again, or makes it. Losing it loses the ticket keys and open claim codes.
func masterKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		// Whoever else is making one at this moment: the first counts.
		fresh := path + "." + rand.Text()
		defer os.Remove(fresh)
		if err := durable.Replace(fresh, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, err
		}
		if err := os.Link(fresh, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := durable.SyncDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%s does not hold a master key of 64 hex digits: restore it from where you keep your secrets", path)
	}
	return key, nil
}

// leastRoom is what must be free for the state's directory to be called well,
// in bytes.
const leastRoom = 1 << 20

// room is a problem when dir's file system is as good as full.
func room(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return muster.Problemf(muster.CodeUnavailable, "the directory of the state cannot be looked at: %v", err)
	}
	if free := uint64(st.Bavail) * uint64(st.Bsize); free < leastRoom {
		return muster.Problemf(muster.CodeUnavailable, "the disk of the state's directory is full: %d KiB are free", free>>10)
	}
	return nil
}
