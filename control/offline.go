package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"muster.internal"
	"muster.internal/store"
)

// Local is who acts on the store itself, as the owner of its host. No operator
// can be called so.
var Local = muster.Caller{Operator: "local:owner", Role: muster.Admin}

// ReadCA reads the CA's certificate and its SHA-256 fingerprint from a
// control plane's directory.
func ReadCA(dir string) (certificate []byte, fingerprint string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "tls", "ca.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("no CA in %s: it is made when musterd starts for the first time", dir)
	}
	if err != nil {
		return nil, "", err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, "", fmt.Errorf("%s/tls/ca.pem holds no certificate", dir)
	}
	sum := sha256.Sum256(block.Bytes)
	return b, hex.EncodeToString(sum[:]), nil
}

// ResetPassword gives an operator a new password on the store itself.
func ResetPassword(ctx context.Context, cfg Config, name string) (password string, err error) {
	if password, err = newPassword(); err != nil {
		return "", err
	}
	err = offline(ctx, cfg, func(s *store.Store) error {
		return s.ResetPassword(ctx, time.Now(), Local, name, password)
	})
	if err == nil {
		err = endFirstLogin(cfg.Dir, name)
	}
	return password, err
}

// CreateKey makes an API key on the store itself. Before the first start it
// makes the store.
func CreateKey(ctx context.Context, cfg Config, n muster.NewKey) (k muster.CreatedKey, err error) {
	err = offline(ctx, cfg, func(s *store.Store) error {
		k, err = s.CreateKey(ctx, time.Now(), Local, n)
		return err
	})
	return k, err
}

// AdoptMasterKey makes the directory's master key, which is made if there is
// none, the store's own: for when the one it was made with is lost.
func AdoptMasterKey(ctx context.Context, cfg Config) error {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	master, err := masterKey(filepath.Join(cfg.Dir, "master.key"))
	if err != nil {
		return err
	}
	return store.AdoptMaster(ctx, store.Options{URL: cfg.storeURL(), MasterKey: master}, time.Now(), Local)
}

// offline opens the store beside, or without, a running control plane.
func offline(ctx context.Context, cfg Config, f func(*store.Store) error) error {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	master, err := masterKey(filepath.Join(cfg.Dir, "master.key"))
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Options{URL: cfg.storeURL(), MasterKey: master, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}
