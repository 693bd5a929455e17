package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"muster.internal"
)

var (
	masterMark = define("master/get", `SELECT mark FROM master_key WHERE id = 1`)
	addMark    = define("master/add", `INSERT INTO master_key (id, mark) VALUES (1, $1) ON CONFLICT (id) DO NOTHING`)
	setMark    = define("master/set", `UPDATE master_key SET mark = $1 WHERE id = 1`)
)

// errMasterKey is a store that was made with another master key.
var errMasterKey = errors.New("this store belongs to another master key: copy master.key from the control plane that made it, or from where you keep your secrets; when it is lost, musterd adopt-master-key goes on without it")

// markOf tells master keys apart and nothing about them.
func markOf(master []byte) string {
	return hex.EncodeToString(derive(master, "muster master key mark")[:16])
}

// knowMaster refuses a master key that is not the store's. With another one
// claim codes would not be found, and ticket keys not be opened.
func (s *Store) knowMaster(ctx context.Context, mark string) error {
	var known string
	look := func() error {
		return s.read(ctx, "comparing the master key", func(r *reading) error {
			_, err := r.get(masterMark, nil, &known)
			return err
		})
	}
	if err := look(); err != nil {
		return err
	}
	if known == "" {
		if err := s.write(ctx, "keeping the master key's mark", time.Time{}, muster.Clock, func(t *tx) error {
			_, err := t.exec(addMark, mark)
			return err
		}); err != nil {
			return err
		}
		if err := look(); err != nil {
			return err
		}
	}
	if known != mark {
		return errMasterKey
	}
	return nil
}

// AdoptMaster makes a master key that the store was not made with its own,
// when the old one is lost: open claim codes and kept ticket keys are lost
// with it. The store is opened by it and closed again.
func AdoptMaster(ctx context.Context, o Options, now time.Time, by muster.Caller) error {
	o.anyMaster = true
	s, err := Open(ctx, o)
	if err != nil {
		return err
	}
	err = s.write(ctx, "adopting a master key", now, by, func(t *tx) error {
		for _, q := range []*query{addMark, setMark} {
			if _, err := t.exec(q, markOf(o.MasterKey)); err != nil {
				return err
			}
		}
		_, err := t.record("adopt_master_key", "store", nil)
		return err
	})
	if err != nil {
		err = fmt.Errorf("adopt the master key: %w", err)
	}
	return errors.Join(err, s.Close())
}
