package main

import (
	"errors"
	"io/fs"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/host"
)

// ownIdentity is this machine's key pair, which is made when there is none.
func ownIdentity(dir string) (credential.Identity, error) {
	id, err := credential.LoadIdentity(identityFile(dir))
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if id, err = credential.NewIdentity(); err != nil {
		return id, err
	}
	return id, id.Store(identityFile(dir))
}

// Certify renews the certificate at half of its time. One that is good still
// does while a new one cannot be had.
func (l *link) Certify(anew, rekey bool) error {
	now := time.Now()
	if c, err := credential.Load(credentialFile(l.dir)); anew && err == nil && c.APIKey != l.credential.APIKey {
		return host.ErrReplaced
	}
	if l.next != nil {
		if err := l.takeNext(); err != nil {
			return err
		}
		anew, rekey = false, false // or it is asked again
	}
	if rekey && l.identity.Good(now) {
		return l.rekey()
	}
	if l.identity.Fresh(now) && !anew {
		return l.connect()
	}
	err := l.certify()
	if err != nil && l.identity.Good(now) && !anew && !muster.IsCode(err, muster.CodeUnauthenticated) && !muster.IsCode(err, muster.CodeGone) {
		if !l.late {
			l.e.say("the certificate cannot be renewed now, and is good until %s: %v", l.identity.Certificate.NotAfter.Local().Format(time.DateTime), err)
		}
		l.late = true
		return l.connect()
	}
	l.late = false
	return err
}

// certify has the key pair signed: by the certificate there is, however old, and
// by the agent key when there is none or that is refused.
func (l *link) certify() error {
	next := credential.Identity{Key: l.identity.Key}
	q, err := request(next)
	if err != nil {
		return err
	}
	var c muster.Certificate
	err = errNoCertificate
	if l.identity.Certificate != nil {
		if err = l.connect(); err == nil {
			c, err = l.line.LinkCertificate(l.ctx, q)
		}
	}
	if errors.Is(err, errNoCertificate) || muster.IsCode(err, muster.CodeUnauthenticated) {
		c, err = l.key.LinkCertificate(l.ctx, q)
	}
	if err != nil {
		return err
	}
	return l.live(next, c)
}

func request(id credential.Identity) (q muster.CertificateRequest, err error) {
	q.CSR, err = id.Request()
	return q, err
}

// live goes on with a certificate that was signed for a key pair.
func (l *link) live(next credential.Identity, c muster.Certificate) error {
	next, err := next.WithPEM(c.Certificate)
	if err != nil {
		return err
	}
	if err := next.Store(identityFile(l.dir)); err != nil {
		return err
	}
	if l.identity.NodeID() != next.NodeID() {
		l.e.say("linked as node %s", next.NodeID())
	}
	l.hangUp()
	l.identity = next
	return l.connect()
}

// nextFile has the credential that a rekeying brought, until it is in its place.
func nextFile(dir string) string { return credentialFile(dir) + ".next" }

// rekey asks for the next agent key, and keeps it before it uses it: the one
// there is dies with that.
func (l *link) rekey() error {
	if err := l.connect(); err != nil {
		return err
	}
	k, err := l.line.LinkKey(l.ctx)
	if muster.IsCode(err, muster.CodeConflict) {
		return nil // nobody asks for it any more
	}
	if err != nil {
		return err
	}
	next := l.credential
	next.APIKey = k.APIKey
	if err := credential.Store(nextFile(l.dir), next); err != nil {
		return err
	}
	l.next = &next
	return l.takeNext()
}

// takeNext uses the next agent key, for the certificate of a new key pair, then
// puts it in its place. It begins anew however far it came before; a key that is
// refused never became this machine's, and the one there is still is.
func (l *link) takeNext() error {
	key, err := client.New(l.next.URL, l.next.APIKey, client.Trust{CA: []byte(l.next.CA)})
	if err != nil {
		return err
	}
	id, err := credential.NewIdentity()
	if err != nil {
		return err
	}
	q, err := request(id)
	if err != nil {
		return err
	}
	c, err := key.LinkCertificate(l.ctx, q)
	if muster.IsCode(err, muster.CodeUnauthenticated) {
		key.Close()
		l.next = nil
		return credential.Drop(nextFile(l.dir))
	}
	if err != nil {
		key.Close()
		return err
	}
	if err := l.live(id, c); err != nil {
		return err
	}
	if err := credential.Store(credentialFile(l.dir), *l.next); err != nil {
		return err
	}
	l.key.Close()
	l.key, l.credential, l.next = key, *l.next, nil
	l.e.say("the key pair, the certificate and the agent key are new ones; the old ones are dead")
	return credential.Drop(nextFile(l.dir))
}

var errNoCertificate = errors.New("there is no certificate yet")

// connect makes the line that speaks with the certificate.
func (l *link) connect() (err error) {
	if l.line == nil {
		l.line, err = client.New(l.credential.URL, "", client.Trust{CA: []byte(l.credential.CA), Pair: l.identity.TLS()})
	}
	return err
}

func (l *link) hangUp() {
	if l.line != nil {
		l.line.Close()
		l.line = nil
	}
}
