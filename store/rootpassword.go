package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

var (
	setRootPassword = define("root-passwords/set", `
INSERT INTO root_passwords (server_uuid, sealed, set_at, set_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (server_uuid) DO UPDATE SET sealed = excluded.sealed, set_at = excluded.set_at, set_by = excluded.set_by, last_nonce = NULL, fetched_at = NULL`)
	getRootPassword   = define("root-passwords/get", `SELECT sealed, set_at, set_by, last_nonce, fetched_at FROM root_passwords WHERE server_uuid = $1`)
	rootPasswordTaken = define("root-passwords/taken", `UPDATE root_passwords SET last_nonce = $2, fetched_at = $3 WHERE server_uuid = $1`)
	dropRootPassword  = define("root-passwords/drop", `DELETE FROM root_passwords WHERE server_uuid = $1`)
	haveRootPassword  = define("root-passwords/machines", `SELECT server_uuid FROM root_passwords`)
)

const rootPurpose = "root-password"

// SetRootPassword keeps the hash of a machine's root password, encrypted. It is
// never shown again, and leaves only with a boot of that machine.
func (s *Store) SetRootPassword(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, p muster.RootPassword) (muster.RootPasswordSet, error) {
	var set muster.RootPasswordSet
	hash, err := s.rootHash(p)
	if err != nil {
		return set, err
	}
	err = s.write(ctx, "setting a root password", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if m.had != muster.Approved && m.had != muster.Disabled {
			if m.had == lifecycle.NoRegistration {
				return unknownMachine(serverUUID)
			}
			p := muster.Problemf(muster.CodeConflict, "cannot set the root password of machine %s: it is %s, and only a member of the fleet has one: set it once the machine is approved", serverUUID, m.had)
			p.State = string(m.had)
			return p
		}
		if m.tomb != nil {
			return muster.Problemf(muster.CodeConflict, "cannot set the root password of machine %s: it was expunged, and boots nothing of ours", serverUUID)
		}
		nonce, err := s.random(s.vault.seals.NonceSize())
		if err != nil {
			return err
		}
		set = muster.RootPasswordSet{SetAt: t.now, SetBy: by.String()}
		if _, err := t.exec(setRootPassword, m.uuid, s.vault.seal(nonce, []byte(hash), ticketOwner(m.uuid, rootPurpose)), micro(t.now), set.SetBy); err != nil {
			return err
		}
		return t.passwordChanged(m, "set_root_password")
	})
	return set, err
}

// rootHash is the hash that was given, or of the password that was.
func (s *Store) rootHash(p muster.RootPassword) (string, error) {
	switch {
	case (p.Password == "") == (p.Hash == ""):
		return "", muster.Invalid("password", "either a password or its hash is needed, and not both")
	case p.Hash != "":
		if !cryptHash.MatchString(p.Hash) {
			return "", muster.Invalid("hash", "this is not a SHA-512 crypt(3) hash: $6$SALT$ and 86 letters, without rounds=, as mkpasswd -m sha-512 or openssl passwd -6 prints it")
		}
		return p.Hash, nil
	case len(p.Password) < 8 || len(p.Password) > 128 || !printable(p.Password):
		return "", muster.Invalid("password", "a root password has 8 to 128 bytes, on one line")
	}
	b, err := s.random(16)
	if err != nil {
		return "", err
	}
	salt := make([]byte, len(b))
	for i := range b {
		salt[i] = cryptLetters[b[i]&63]
	}
	return sha512crypt(p.Password, string(salt), cryptRounds), nil
}

// ClearRootPassword forgets it; that there was none is success.
func (s *Store) ClearRootPassword(ctx context.Context, now time.Time, by muster.Caller, serverUUID string) error {
	return s.write(ctx, "clearing a root password", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if had, err := findRootPassword(t, m.uuid); err != nil || had == nil {
			return err
		}
		if _, err := t.exec(dropRootPassword, m.uuid); err != nil {
			return err
		}
		return t.passwordChanged(m, "clear_root_password")
	})
}

// passwordChanged puts it on record, and tells the booters of the machine's
// records that there is one now, or none.
func (t *tx) passwordChanged(m *machine, action string) error {
	seq, err := t.record(action, subject(m.uuid), nil)
	if err != nil {
		return err
	}
	for _, b := range m.boots {
		if b.ServerUUID != m.uuid {
			continue
		}
		if err := t.putRecord(b, seq); err != nil {
			return err
		}
	}
	m.reg.seq = seq
	return t.putRegistration(m.reg, m.had)
}

func findRootPassword(from source, uuid string) (*muster.RootPasswordSet, error) {
	var sealed, nonce []byte
	var at int64
	var fetched *int64
	p := new(muster.RootPasswordSet)
	found, err := from.get(getRootPassword, []any{uuid}, &sealed, &at, &p.SetBy, &nonce, &fetched)
	if err != nil || !found {
		return nil, err
	}
	p.SetAt, p.FetchedAt = fromMicro(at), fromMicroPtr(fetched)
	return p, nil
}

// markPasswords says of the records that booters get whether their machine has
// a root password.
func markPasswords(from source, rs []muster.BootRecord) error {
	have := map[string]bool{}
	err := from.each(haveRootPassword, nil, func(scan func(...any) error) error {
		var uuid string
		err := scan(&uuid)
		have[uuid] = true
		return err
	})
	for i := range rs {
		rs[i].RootPassword = rs[i].State == muster.Enrolled && have[rs[i].ServerUUID]
	}
	return err
}

// MarkPasswords does so for records that a booter gets ahead of the feed.
func (s *Store) MarkPasswords(ctx context.Context, rs []muster.BootRecord) error {
	for _, r := range rs {
		if r.State == muster.Enrolled {
			return s.read(ctx, "reading who has a root password", func(r *reading) error { return markPasswords(r, rs) })
		}
	}
	return nil
}

// TakeRootPassword hands the hash to one boot of the machine's own enrolled NIC.
func (s *Store) TakeRootPassword(ctx context.Context, now time.Time, by muster.Caller, mac string, q muster.BootSecretRequest) (muster.BootSecret, error) {
	var secret muster.BootSecret
	mac, err := parseMAC(mac)
	if err != nil {
		return secret, err
	}
	if b, err := hex.DecodeString(q.Nonce); err != nil || len(b) != 16 {
		return secret, muster.Invalid("nonce", "must be the 32 hex digits that name a boot")
	}
	err = s.write(ctx, "handing out a root password", now, by, func(t *tx) error {
		b, err := findRecord(t, mac)
		if err != nil {
			return err
		}
		if b.State != muster.Enrolled || b.Mode != muster.NormalMode {
			p := muster.Problemf(muster.CodeConflict, "boot record %s is %s in mode %s: only the boot of an enrolled one gets a root password", mac, b.public().State, b.Mode)
			p.State = string(b.public().State)
			return p
		}
		reg, err := findRegistration(t, b.ServerUUID)
		if err != nil {
			return err
		}
		var sealed, last []byte
		var at int64
		var by string
		var fetched *int64
		found, err := t.get(getRootPassword, []any{b.ServerUUID}, &sealed, &at, &by, &last, &fetched)
		if err != nil {
			return err
		}
		if !found || reg == nil || reg.State != muster.Approved {
			return muster.Problemf(muster.CodeNotFound, "machine %s of boot record %s has no root password, or is no member of the fleet now", b.ServerUUID, mac)
		}
		if equal(last, hashed(q.Nonce)) {
			return muster.Problemf(muster.CodeConflict, "this boot of %s has had its root password: it is given once", mac)
		}
		hash, err := s.vault.open(sealed, ticketOwner(b.ServerUUID, rootPurpose))
		if err != nil {
			return fmt.Errorf("root password of %s: %w (was the master key changed?)", b.ServerUUID, err)
		}
		if _, err := t.exec(rootPasswordTaken, b.ServerUUID, hashed(q.Nonce), micro(t.now)); err != nil {
			return err
		}
		secret = muster.BootSecret{RootPasswordHash: string(hash)}
		reg.seq, err = t.record("deliver_root_password", subject(b.ServerUUID), detail{"booter": q.Booter, "mac": mac})
		if err != nil {
			return err
		}
		return t.putRegistration(reg, reg.State)
	})
	return secret, err
}
