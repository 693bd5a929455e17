package control

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/lifecycle"
	"muster.internal/store"
)

// Authenticate implements api.Service. A secret is looked at before its source
// is judged, so that one that is right is never refused for its neighbours:
// only what fails is counted, and told to wait. That gives guessers nothing, for
// a secret is 256 random bits, and costs a hash and a look at one row.
func (c *Control) Authenticate(ctx context.Context, proof api.Proof, source string) (muster.Caller, error) {
	now := c.now()
	caller, _, err := c.whose(ctx, now, proof, source)
	if muster.IsCode(err, muster.CodeUnauthenticated) {
		err = c.secrets.fail(now, source, err)
	}
	return caller, err
}

// whose finds who speaks with a secret, and how long that may be believed.
// Sources that fail too often share a few places at the store: they must not
// keep the others from it.
func (c *Control) whose(ctx context.Context, now time.Time, proof api.Proof, source string) (_ muster.Caller, until time.Time, _ error) {
	if proof.Certificate != nil {
		return c.whoseCertificate(ctx, now, proof.Certificate, source)
	}
	bearer := proof.Bearer
	if caller, until, ok := c.keys.get(ctx, now, bearer); ok {
		caller.Source = source
		return caller, until, nil
	}
	if c.secrets.check(now, source) != nil {
		select {
		case c.doubted <- struct{}{}:
			defer func() { <-c.doubted }()
		case <-ctx.Done():
			return muster.Caller{}, now, ctx.Err()
		}
	}
	mark := c.keys.mark()
	caller, ends, err := c.store.AuthenticateUntil(ctx, now, bearer, source)
	if err == nil && !caller.Lapsed { // what a key that has no place yet may do changes with its first use
		until = c.keys.put(now, mark, bearer, caller, ends)
	}
	return caller, until, err
}

func (s session) Login(ctx context.Context, l muster.Login) (muster.Token, error) {
	now := s.now()
	// Counted by name, too: one guesser with many addresses must not get at one
	// operator. But guessers must not lock the operator out, either: an address
	// from which this operator came in before is not held to it.
	forgive, known := func() {}, s.welcome.is(l.Name, s.by.Source)
	if !known {
		f, err := s.names.enter(now, "operator "+l.Name, false)
		if err != nil {
			return muster.Token{}, err
		}
		forgive = f
	}
	// So are those that are under way at the same moment from one address. There
	// it is those of one name, where that operator came in before: people behind
	// one address must not lock each other out.
	from := neighbourhood(s.by.Source)
	if known {
		from += " " + l.Name
	}
	right, err := s.logins.enter(now, from, false)
	if err != nil {
		forgive()
		return muster.Token{}, err
	}
	// A password is slow to check on purpose; a crowd of guessers must not get
	// every processor.
	select {
	case s.hashing <- struct{}{}:
		defer func() { <-s.hashing }()
	case <-ctx.Done():
		return muster.Token{}, ctx.Err() // and it counts: it took a place in the queue
	}
	t, err := s.store.Login(ctx, now, s.by.Source, l)
	if !muster.IsCode(err, muster.CodeUnauthenticated) {
		right()
		forgive()
	}
	if err == nil {
		s.welcome.add(l.Name, s.by.Source)
	}
	return t, err
}

func (s session) Operators(ctx context.Context) ([]muster.Operator, error) {
	return s.store.Operators(ctx)
}

func (s session) CreateOperator(ctx context.Context, n muster.NewOperator) (muster.Operator, error) {
	return s.store.CreateOperator(ctx, s.now(), s.by, n)
}

func (s session) Keys(ctx context.Context) ([]muster.APIKey, error) { return s.store.Keys(ctx) }

func (s session) CreateKey(ctx context.Context, n muster.NewKey) (muster.CreatedKey, error) {
	return s.store.CreateKey(ctx, s.now(), s.by, n)
}

func (s session) RevokeKey(ctx context.Context, id string) error {
	return s.store.RevokeKey(ctx, s.now(), s.by, id)
}

func (s session) Audit(ctx context.Context, f muster.AuditFilter) ([]muster.AuditEntry, error) {
	if f.Wait <= 0 {
		return s.store.Audit(ctx, f)
	}
	wait, cancel := context.WithTimeout(ctx, f.Wait)
	defer cancel()
	for after := f.After; ; {
		es, err := s.store.Audit(ctx, f)
		if err != nil || len(es) > 0 || wait.Err() != nil {
			return es, err
		}
		// Entries about other subjects move the head: wait for what is beyond it.
		if head, err := s.store.Head(ctx); err == nil && head > after {
			after = head
		}
		if err := s.store.Wait(wait, after); err != nil {
			return nil, err
		}
	}
}

func (s session) VerifyAudit(ctx context.Context) (muster.AuditVerdict, error) {
	return s.store.VerifyAudit(ctx)
}

// Bounds of what the cache may believe.
const (
	// cacheLag bounds how long after a revocation by another process (another
	// control plane, or musterd's offline commands) a secret may still be
	// believed. One by this process is seen by the next request.
	cacheLag = 250 * time.Millisecond
	// cacheAge bounds how long a secret is believed without another look at the
	// store; an agent's key, which every heartbeat carries, is believed longer.
	cacheAge      = 5 * time.Second
	cacheAgentAge = 10 * time.Minute
	cacheSize     = 50_000
	// cacheAway is how long the cache does without a store that did not answer,
	// so that callers do not queue for it one timeout behind the other.
	cacheAway = time.Second
)

// An authCache remembers which secrets are right, so that a heartbeat costs no
// SQL. It follows the change feed: nothing is believed before everything that
// was committed has been looked at.
type authCache struct {
	store *store.Store

	mu      sync.Mutex
	known   map[[32]byte]believed
	seq     int64           // everything up to here has been looked at
	at      time.Time       // when
	changed <-chan struct{} // closed by the next commit of this process
	flushes int64
	emptied chan struct{} // closed by the next flush
	down    time.Time     // when the store last did not answer
}

type believed struct {
	caller muster.Caller
	until  time.Time
}

func newAuthCache(s *store.Store) *authCache {
	return &authCache{store: s, known: map[[32]byte]believed{}, emptied: make(chan struct{})}
}

// get finds a secret that is right for sure. A store that does not answer is
// no reason to believe anything.
func (a *authCache) get(ctx context.Context, now time.Time, secret string) (_ muster.Caller, until time.Time, _ bool) {
	sum := sha256.Sum256([]byte(secret))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.catchUp(ctx, now) {
		return muster.Caller{}, now, false
	}
	b, ok := a.known[sum]
	return b.caller, b.until, ok && now.Before(b.until)
}

// mark is taken before a secret is looked up in the store: what was revoked in
// between must not be put.
func (a *authCache) mark() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.flushes
}

// put believes a secret for a while, and never beyond its own end. It tells
// until when.
func (a *authCache) put(now time.Time, mark int64, secret string, c muster.Caller, ends *time.Time) (until time.Time) {
	age := cacheAge
	if c.Scope == muster.ScopeAgent {
		age = cacheAgentAge
	}
	until = now.Add(age)
	if ends != nil && ends.Before(until) {
		until = *ends
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if mark != a.flushes || a.changed == nil {
		return now
	}
	if len(a.known) >= cacheSize {
		a.flush()
	}
	a.known[sha256.Sum256([]byte(secret))] = believed{c, until}
	return until
}

// keepsKeys are the frequent changes that end no secret. Anything else, known
// or not, empties the cache.
var keepsKeys = func() map[string]bool {
	m := map[string]bool{"conflict": true, "session_lost": true, "reconnected": true, "add_image": true, "set_policy": true,
		"login": true, "open_window": true, "close_window": true, "expire_window": true, "use_up_window": true,
		"take_slot": true, "issue_token": true, "revoke_token": true, "deliver_root_password": true, "create_key": true, "create_operator": true,
		"declare": true, "order": true, "next_key": true, "retired": true, "sign_certificate": true, "away": true, "back": true, "drift_fought": true, "add_provider": true, "remove_provider": true,
		store.ActionClaim: true, store.ActionClaimDrain: true, store.ActionClaimKeep: true, store.ActionClaimRelease: true, store.ActionClaimBreak: true, store.ActionClaimExpire: true, store.ActionClaimEnd: true,
		store.ActionGrant: true, store.ActionGrantLive: true, store.ActionGrantRevoke: true, store.ActionGrantRevoked: true, store.ActionGrantFailed: true, store.ActionLabel: true, "rebooted": true, store.ActionReservoir: true, store.ActionNote: true, store.ActionDiskMissing: true, store.ActionDiskBack: true, store.ActionMinimum: true, store.ActionNoMinimum: true, "apply_failed": true, "reverted": true, "placement_healthy": true, "placement_unhealthy": true,
		store.ActionAddModule: true, store.ActionWantModule: true, store.ActionRemoveModule: true, store.ActionSetTarget: true, store.ActionPlanning: true,
		store.ActionPruneBlueprints: true, store.ActionHandOver: true, store.ActionDeclareFailed: true, store.ActionHook: true, store.ActionHookDone: true, store.ActionHookFailed: true,
		string(lifecycle.DecommissionDisk): true}
	for _, state := range muster.PlacementStates {
		m[store.ActionPlacement(state)] = true
	}
	for _, e := range []muster.Event{
		lifecycle.Sight, lifecycle.Admit, lifecycle.StartProbe, lifecycle.Dismiss, lifecycle.SetRecord, lifecycle.Enroll,
		lifecycle.Announce, lifecycle.Survey, lifecycle.ApproveSetup, lifecycle.Take, lifecycle.SetupComplete,
		lifecycle.Refresh, lifecycle.Confirm, lifecycle.Quiesced, lifecycle.Resumed, lifecycle.Register, lifecycle.Approve, lifecycle.Deliver, lifecycle.AdoptDisk,
	} {
		m[string(e)] = true
	}
	return m
}()

// doubt returns what is closed when nothing is believed any more, and has to be
// looked up again.
func (a *authCache) doubt() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.emptied
}

// look catches up at once.
func (a *authCache) look(ctx context.Context, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed != nil { // else nothing is believed
		a.follow(ctx, now)
	}
}

// catchUp looks at every change that was committed since the last time. It is
// false when that cannot be done.
func (a *authCache) catchUp(ctx context.Context, now time.Time) bool {
	if a.changed != nil && now.Sub(a.at) < cacheLag && now.Sub(a.at) >= 0 {
		select {
		case <-a.changed:
		default:
			return true
		}
	}
	if time.Since(a.down) < cacheAway {
		return false
	}
	ok := a.follow(ctx, now)
	if !ok && ctx.Err() == nil {
		a.down = time.Now() // not now: that is when a caller began to wait for another
	}
	return ok
}

func (a *authCache) follow(ctx context.Context, now time.Time) bool {
	changed := a.store.Changed()
	if a.changed == nil { // nothing is believed yet, so the past does not matter
		head, err := a.store.Head(ctx)
		if err != nil {
			return false
		}
		a.seq = head
	}
	for {
		es, err := a.store.Audit(ctx, muster.AuditFilter{After: a.seq})
		if err != nil {
			return false
		}
		for _, e := range es {
			a.seq = e.Seq
			if !keepsKeys[e.Action] {
				a.flush()
			}
		}
		if len(es) == 0 {
			break
		}
	}
	a.at, a.changed = now, changed
	return true
}

func (a *authCache) flush() {
	clear(a.known)
	a.flushes++
	close(a.emptied)
	a.emptied = make(chan struct{})
}
