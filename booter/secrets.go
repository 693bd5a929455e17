package booter

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

const (
	// secretWait bounds what a boot waits for the control plane: without an
	// answer it goes on without its root password.
	secretWait = 3 * time.Second
	// secretLife is how long a boot may take to ask for what it was promised.
	secretLife = 15 * time.Minute
)

// secrets are the nonces that boots were given, one a machine: what a boot
// carries that is secret is fetched with it, once. No secret is kept here.
type secrets struct {
	mu    sync.Mutex
	given map[dhcp.MAC]given
}

type given struct {
	nonce string
	until time.Time
}

// give makes a boot's nonce; the one of an earlier boot is dead.
func (s *secrets) give(m dhcp.MAC, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = map[dhcp.MAC]given{}
	}
	for k, g := range s.given {
		if now.After(g.until) {
			delete(s.given, k)
		}
	}
	g := given{nonce(), now.Add(secretLife)}
	s.given[m] = g
	return g.nonce
}

// take tells whether the nonce is this machine's, and spends it.
func (s *secrets) take(m dhcp.MAC, nonce string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.given[m]
	if !ok || g.nonce != nonce || now.After(g.until) {
		return false
	}
	delete(s.given, m)
	return true
}

// own tells whether a request comes from the address that the machine was
// given. Whoever else asks for its boot script is told and promised no secret,
// and does not spend the promise that the machine has. A booter on loopback
// serves machines that have no addresses of their own.
func (b *Booter) own(d *boot.Decision, remote string) bool {
	from, err := netip.ParseAddrPort(remote)
	return err == nil && (from.Addr().Unmap() == d.Address.Addr() || b.cfg.Address.IsLoopback())
}

// extra is what a boot gets beyond its record: a promise of its root password,
// or, where the boot loader must hand it over, the hash itself.
func (b *Booter) extra(r *http.Request, m dhcp.MAC, d *boot.Decision, rec *muster.BootRecord) (x boot.Extra) {
	if r.Method != http.MethodGet || d.Mode != boot.Node || !rec.RootPassword || d.Image == nil {
		return x
	}
	if !b.own(d, r.RemoteAddr) {
		b.tally.add(countSecretsRefused)
		b.log.Debug("a boot script was asked for from an address that is not the machine's: it gets no root password", "mac", m.String(), "from", r.RemoteAddr)
		return x
	}
	nonce := b.secrets.give(m, b.now())
	if d.Image.Kind == muster.LinuxImage {
		x.Nonce = nonce
		return x
	}
	if b.secrets.take(m, nonce, b.now()) {
		x.RootShadow = b.rootPassword(r.Context(), m, nonce)
	}
	return x
}

// rootPassword fetches the hash for one boot. Without it the machine boots all
// the same, and the log says so.
func (b *Booter) rootPassword(ctx context.Context, m dhcp.MAC, nonce string) string {
	ctx, cancel := context.WithTimeout(ctx, secretWait)
	defer cancel()
	s, err := b.cfg.Control.TakeRootPassword(ctx, m.String(), muster.BootSecretRequest{Booter: b.cfg.Name, Nonce: nonce})
	if err != nil {
		b.log.Warn("the machine boots without its root password: the control plane did not hand it out", "mac", m.String(), "error", err)
		return ""
	}
	if !boot.ValidShadow(s.RootPasswordHash) {
		b.log.Warn("the machine boots without its root password: what the control plane handed out is no crypt(3) hash", "mac", m.String())
		return ""
	}
	return s.RootPasswordHash
}

// once hands a booted machine its root password's hash, for the nonce that its
// boot was given, from the address that is reserved for it.
func (b *Booter) once(w http.ResponseWriter, r *http.Request, m dhcp.MAC, nonce string) {
	d, _ := b.decide(boot.Request{Via: boot.HTTP, MAC: m, Want: boot.File})
	trace, ok := b.allowed(w, r, "root password", &d, 0)
	if !ok {
		return
	}
	if r.Method != http.MethodGet || d.Mode != boot.Node || !b.own(&d, r.RemoteAddr) || !b.secrets.take(m, nonce, b.now()) {
		b.traces.done(trace, "refused", 0, b.now())
		refuse(w, http.StatusNotFound, "this boot was promised nothing, or has had it")
		return
	}
	hash := b.rootPassword(r.Context(), m, nonce)
	if hash == "" {
		b.traces.done(trace, "failed", 0, b.now())
		refuse(w, http.StatusServiceUnavailable, "the control plane did not hand it out")
		return
	}
	text(w, r, []byte(hash+"\n"))
	b.traces.done(trace, "done", 0, b.now())
}
