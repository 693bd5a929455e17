package store

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

const enrolmentColumns = `id, secret_hash, comment, as_node, created_at, created_by, expires_at, used_at, used_by, nonce_hash, key_id, revoked_at, revoked_by`

var (
	addEnrolment = define("enrolment-tokens/add", `
INSERT INTO enrolment_tokens (`+enrolmentColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, NULL, '', NULL, '', NULL, '')`)
	getEnrolment  = define("enrolment-tokens/get", `SELECT `+enrolmentColumns+` FROM enrolment_tokens WHERE id = $1`)
	enrolmentsAll = define("enrolment-tokens/list", `SELECT `+enrolmentColumns+` FROM enrolment_tokens ORDER BY created_at DESC, id`)
	// The condition makes a token single-use, whoever has read it before.
	useEnrolment = define("enrolment-tokens/use", `
UPDATE enrolment_tokens SET used_at = $2, used_by = $3, nonce_hash = $4, key_id = $5
WHERE id = $1 AND used_at IS NULL AND revoked_at IS NULL AND expires_at > $2`)
	renewEnrolment  = define("enrolment-tokens/renew", `UPDATE enrolment_tokens SET key_id = $3 WHERE id = $1 AND key_id = $2`)
	revokeEnrolment = define("enrolment-tokens/revoke", `
UPDATE enrolment_tokens SET revoked_at = $2, revoked_by = $3 WHERE id = $1 AND used_at IS NULL AND revoked_at IS NULL`)
	nodeByID = define("nodes/get", `SELECT `+nodeColumns+` FROM nodes WHERE node_id = $1`)
)

// An enrolment is a token's row.
type enrolment struct {
	muster.EnrolmentToken
	secretHash, nonceHash []byte
	keyID                 string
}

func scanEnrolment(scan func(...any) error, now time.Time) (e enrolment, err error) {
	var created, expires int64
	var used, revoked *int64
	err = scan(&e.ID, &e.secretHash, &e.Comment, &e.AsNode, &created, &e.CreatedBy, &expires, &used, &e.UsedBy, &e.nonceHash, &e.keyID, &revoked, &e.RevokedBy)
	e.CreatedAt, e.ExpiresAt, e.UsedAt, e.RevokedAt = fromMicro(created), fromMicro(expires), fromMicroPtr(used), fromMicroPtr(revoked)
	switch {
	case e.UsedAt != nil:
		e.State = muster.TokenUsed
	case e.RevokedAt != nil:
		e.State = muster.TokenRevoked
	case !now.Before(e.ExpiresAt):
		e.State = muster.TokenExpired
	default:
		e.State = muster.TokenUnused
	}
	return e, err
}

func findEnrolment(from source, id string, now time.Time) (e enrolment, found bool, err error) {
	err = from.each(getEnrolment, []any{id}, func(scan func(...any) error) error {
		found = true
		e, err = scanEnrolment(scan, now)
		return err
	})
	return e, found, err
}

func enrolmentSubject(id string) string { return "enrolment-token/" + id }

// EnrolmentTokens lists every token, newest first, without secrets.
func (s *Store) EnrolmentTokens(ctx context.Context, now time.Time) ([]muster.EnrolmentToken, error) {
	ts := []muster.EnrolmentToken{}
	err := s.read(ctx, "listing enrolment tokens", func(r *reading) error {
		ts = ts[:0]
		return r.each(enrolmentsAll, nil, func(scan func(...any) error) error {
			e, err := scanEnrolment(scan, now)
			ts = append(ts, e.EnrolmentToken)
			return err
		})
	})
	return ts, err
}

// IssueEnrolmentToken makes a token and returns its secret, which is kept
// nowhere. A node that it names must be there.
func (s *Store) IssueEnrolmentToken(ctx context.Context, now time.Time, by muster.Caller, n muster.NewEnrolmentToken) (issued muster.IssuedEnrolmentToken, secret []byte, err error) {
	life := time.Duration(n.ExpiresIn) * time.Second
	switch {
	case n.ExpiresIn == 0:
		life = muster.EnrolmentTokenLife
	case n.ExpiresIn < 60 || n.ExpiresIn > int(muster.EnrolmentTokenAtMost/time.Second):
		return issued, nil, muster.Invalid("expires_in_seconds", "a token lasts from a minute to 30 days (2592000 s)")
	}
	if len(n.Comment) > 200 || !printable(n.Comment) || !keepable(n.Comment) {
		return issued, nil, muster.Invalid("comment", "a comment is one line of at most 200 bytes")
	}
	err = s.write(ctx, "issuing an enrolment token", now, by, func(t *tx) error {
		issued, secret, err = t.issue(n, life)
		return err
	})
	return issued, secret, err
}

func (t *tx) issue(n muster.NewEnrolmentToken, life time.Duration) (issued muster.IssuedEnrolmentToken, secret []byte, err error) {
	if n.AsNode != "" {
		m, err := t.named(n.AsNode)
		if err != nil {
			return issued, nil, err
		}
		c := m.comesAs(true)
		c.Why = fmt.Sprintf("machine %s would be node %s again; any other hardware takes the node over, with its placements, disks and labels, and machine %s is out, its key dead", m.uuid, n.AsNode, m.uuid)
		issued.ComesAs = &c
	}
	id, err := t.s.newID()
	if err != nil {
		return issued, nil, err
	}
	if secret, err = t.s.random(32); err != nil {
		return issued, nil, err
	}
	issued.EnrolmentToken = muster.EnrolmentToken{ID: id, State: muster.TokenUnused, Comment: n.Comment, AsNode: n.AsNode,
		CreatedAt: t.now, CreatedBy: t.by.String(), ExpiresAt: t.now.Add(life)}
	if _, err := t.exec(addEnrolment, id, hashed(string(secret)), n.Comment, n.AsNode, micro(t.now), issued.CreatedBy, micro(issued.ExpiresAt)); err != nil {
		return issued, nil, err
	}
	_, err = t.record("issue_token", enrolmentSubject(id), detail{"expires_at": issued.ExpiresAt, "comment": n.Comment, "as_node": n.AsNode})
	return issued, secret, err
}

// named finds the machine of a node that a token names, as long as it is there.
func (t *tx) named(node string) (*machine, error) {
	var n muster.Node
	if err := t.each(nodeByID, []any{node}, func(scan func(...any) error) (err error) {
		n, err = scanNode(scan)
		return err
	}); err != nil {
		return nil, err
	}
	if n.ID == "" {
		return nil, muster.Invalid("as_node", "there is no node %.64q: muster node ls shows them", node)
	}
	if n.State == muster.NodeDecommissioned {
		return nil, muster.Problemf(muster.CodeConflict, "node %s is decommissioned: its machine can only come in as a new node, by a token that names none", n.ID)
	}
	if n.Policy == muster.PolicyExpunged {
		return nil, muster.Problemf(muster.CodeConflict, "node %s is expunged: nothing comes in as that node again; have its machine readmitted (muster registration readmit %s), and let it in as a new one", n.ID, n.ServerUUID)
	}
	return t.load(n.ServerUUID)
}

// RevokeEnrolmentToken ends a token that was not used. Revoking it again is no
// error; one that was used has done what it could.
func (s *Store) RevokeEnrolmentToken(ctx context.Context, now time.Time, by muster.Caller, id string) error {
	if !keyID.MatchString(id) {
		return muster.Invalid("id", "a token's id has 12 letters and digits, as muster token ls shows them")
	}
	return s.write(ctx, "revoking an enrolment token", now, by, func(t *tx) error {
		e, found, err := findEnrolment(t, id, t.now)
		switch {
		case err != nil:
			return err
		case !found:
			return muster.Problemf(muster.CodeNotFound, "there is no enrolment token %s: muster token ls shows them", id)
		case e.State == muster.TokenUsed:
			return muster.Problemf(muster.CodeConflict, "enrolment token %s was used, by machine %s: to undo that, disable the machine's registration", id, e.UsedBy)
		case e.RevokedAt != nil:
			return nil
		}
		if _, err := t.record("revoke_token", enrolmentSubject(id), detail{"comment": e.Comment}); err != nil {
			return err
		}
		return t.change(revokeEnrolment, id, micro(t.now), by.String())
	})
}

// Enrol is the token door: it lets a machine in and answers with its key. It
// makes no boot record.
func (s *Store) Enrol(ctx context.Context, now time.Time, by muster.Caller, q muster.EnrolRequest) (reply muster.EnrolReply, err error) {
	secret, err := checkEnrol(q)
	if err != nil {
		return reply, err
	}
	// Wrong tokens are told so by a reading: guessers must not take up the lane.
	if err := s.read(ctx, "looking at an enrolment token", func(r *reading) error {
		_, err := redeemable(r, q.TokenID, secret, now)
		return err
	}); err != nil {
		return reply, err
	}
	uuid, what, err := read(q.ServerUUID, q.Sysinfo)
	if err != nil {
		return reply, err
	}
	if err := checkRegister(muster.RegisterRequest{Hostname: q.Hostname, ConsolePort: q.ConsolePort, ConsolePin: q.ConsolePin}); err != nil {
		return reply, err
	}
	var refused error
	err = s.write(ctx, "redeeming an enrolment token", now, by, func(t *tx) error {
		reply, refused, err = t.enrol(uuid, q, secret, what)
		return err
	})
	if err == nil {
		err = refused
	}
	return reply, err
}

func checkEnrol(q muster.EnrolRequest) (secret []byte, err error) {
	if !keyID.MatchString(q.TokenID) {
		return nil, muster.Invalid("token_id", "a token's id has 12 letters and digits")
	}
	if secret, err = base64.RawURLEncoding.DecodeString(q.Secret); err != nil || len(secret) != 32 {
		return nil, muster.Invalid("secret", "a token's secret is 32 bytes in base64url without padding")
	}
	if b, err := hex.DecodeString(q.Nonce); err != nil || len(b) != 16 {
		return nil, muster.Invalid("nonce", "must be 32 hex digits, drawn anew for each enrolment")
	}
	return secret, nil
}

// redeemable finds the token that this is the secret of, used or not.
func redeemable(from source, id string, secret []byte, now time.Time) (enrolment, error) {
	e, found, err := findEnrolment(from, id, now)
	if err == nil && (!equal(e.secretHash, hashed(string(secret))) || !found) {
		err = muster.Problemf(muster.CodeUnauthenticated, "this enrolment token is not known: have an operator issue one (muster token issue)")
	}
	return e, err
}

// enrol redeems a token. Whoever does not hold the secret learns nothing; who
// does is told exactly why not. A token that lets nobody in stays good. Refused
// is apart from the error, because the newcomer that it leads to is kept.
func (t *tx) enrol(uuid string, q muster.EnrolRequest, secret []byte, what said) (reply muster.EnrolReply, refused, err error) {
	e, err := redeemable(t, q.TokenID, secret, t.now)
	if err != nil {
		return reply, nil, err
	}
	m, err := t.load(uuid)
	if err != nil {
		return reply, nil, err
	}
	retry := e.retriedBy(m, q.Nonce, t.now)
	if e.State != muster.TokenUnused && !retry {
		return reply, nil, e.spent(m)
	}
	sh, err := t.shared()
	if err != nil {
		return reply, nil, err
	}
	if row, is := sh.UUID(uuid); is && m.had == lifecycle.NoRegistration {
		return reply, nil, sharedUUID(uuid, row)
	}
	if e.AsNode != "" {
		old, err := t.named(e.AsNode)
		if err != nil {
			return reply, nil, err
		}
		if old.uuid != m.uuid {
			return t.takeOver(old, m, sh, e, q, what)
		}
	}
	f := lifecycle.Facts{TokenGood: true, SameMachine: true, MayReplace: e.AsNode != "" || retry}
	var incumbent *machine
	var verdict inventory.Verdict
	if e.AsNode == "" {
		if incumbent, verdict, err = t.judge(m, sh, what); err != nil {
			return reply, nil, err
		}
		f.SameMachine = incumbent == nil
	} else { // a person's word about the node's hardware, but not about others'
		odd, err := t.withhold(m, sh, &what)
		if err == nil {
			err = t.noteOddity(m.uuid, odd, what.facts)
		}
		if err != nil {
			return reply, nil, err
		}
	}
	as := m.comesAs(f.MayReplace)
	next, _, err := m.raise(lifecycle.Redeem, f)
	if err != nil {
		if incumbent != nil && m.contested(lifecycle.Redeem, f) {
			return reply, waiting(err, verdict), t.contest(incumbent, uuid, what, verdict, bootMACOf(what), t.by.Source)
		}
		return reply, nil, m.waysIn(err)
	}
	if m.had == lifecycle.NoRegistration {
		if err := t.roomForMachine(""); err != nil {
			return reply, nil, err
		}
	}
	if err := t.settledIn(m, bootMACOf(what)); err != nil {
		return reply, nil, err
	}
	reply, err = t.redeem(m, next, redemption{event: lifecycle.Redeem, token: e, request: q, what: what, as: as, retry: retry})
	return reply, nil, err
}

// retriedBy tells whether the machine that redeemed the token asks again, in
// time: the key that the lost answer held is replaced by another.
func (e *enrolment) retriedBy(m *machine, nonce string, now time.Time) bool {
	return e.State == muster.TokenUsed && e.UsedBy == m.uuid && equal(e.nonceHash, hashed(nonce)) &&
		now.Before(e.UsedAt.Add(muster.EnrolmentTokenRetry)) && m.had == muster.Approved && m.reg.BoundKeyID == e.keyID
}

// spent says what became of a token that is not good any more, and how the
// machine gets in all the same.
func (e *enrolment) spent(m *machine) error {
	p := muster.Problemf(muster.CodeConflict, "enrolment token %s was revoked: have an operator issue another", e.ID)
	switch e.State {
	case muster.TokenExpired:
		p.Detail = fmt.Sprintf("enrolment token %s expired at %s: have an operator issue another", e.ID, e.ExpiresAt.Format(time.RFC3339))
	case muster.TokenUsed:
		p.Detail = fmt.Sprintf("enrolment token %s was used already, by machine %s: tokens are used once; have an operator issue another", e.ID, e.UsedBy)
		if e.UsedBy == m.uuid && m.node.ID != "" {
			p.Detail = fmt.Sprintf("enrolment token %s was used already, by this machine: if it lost the answer, have an operator issue another for its node (muster token issue --as %s)", e.ID, m.node.ID)
		}
	}
	p.State = string(e.State)
	return p
}

// A redemption is a token that is good, and what it lets a machine in as.
type redemption struct {
	event    muster.Event
	token    enrolment
	request  muster.EnrolRequest
	what     said
	as       muster.ComesAs
	retry    bool
	replaces string // UUID of the hardware that was the node, if it is other
}

// redeem lets the machine in. Its node, if it takes over another's, is its own
// already.
func (t *tx) redeem(m *machine, next lifecycle.State, x redemption) (reply muster.EnrolReply, err error) {
	e, q, what, as := x.token, x.request, x.what, x.as
	r := m.reg
	r.take(what)
	if q.Hostname != "" {
		r.Hostname = q.Hostname
	}
	d := detail{"from": m.had, "token": e.ID, "issued_by": e.CreatedBy, "hostname": r.Hostname, "serial": r.Serial, "macs": r.MACs, "comes_as": as.Outcome}
	if x.replaces != "" {
		d["replaces"], d["node_id"] = x.replaces, m.node.ID
	}
	if r.BoundKeyID != "" {
		d["revoked_key"] = r.BoundKeyID
		if err := t.dropCredential(m.uuid); err != nil {
			return reply, err
		}
	}
	if r.BoundKeyID, err = t.s.newID(); err != nil {
		return reply, err
	}
	d["api_key"] = r.BoundKeyID
	r.Door, r.LastSeen, r.source = muster.DoorToken, t.now, t.by.Source
	r.ConsolePort, r.ConsolePin, r.claimUsed, r.pollHash = q.ConsolePort, q.ConsolePin, nil, nil
	if reply.APIKey, err = t.mintAgentKey(m); err != nil {
		return reply, err
	}
	if x.retry {
		d["again"] = true
		err = t.change(renewEnrolment, e.ID, e.keyID, r.BoundKeyID)
	} else {
		err = t.change(useEnrolment, e.ID, micro(t.now), m.uuid, hashed(q.Nonce), r.BoundKeyID)
	}
	if err != nil {
		return reply, err
	}
	seq, err := t.record(string(x.event), subject(m.uuid), d)
	if err != nil {
		return reply, err
	}
	if err := t.save(m, next, seq); err != nil {
		return reply, err
	}
	reply.ServerUUID, reply.State, reply.NodeID, reply.ComesAs = m.uuid, r.State, r.NodeID, as
	reply.ComesAs.NodeID = m.node.ID
	return reply, t.keepSysinfo(m, what)
}
