package world

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/enrol"
	"muster.internal/lifecycle"
	"muster.internal/sim"
)

// play does what a step says. What the control plane refuses an operator is in
// the transcript.
func (w *World) play(s Step) {
	verb, rest := s.Words[0], s.Words[1:]
	w.say("> %s", strings.Join(s.Words, " "))
	w.books.stir(w)
	if w.plane.c == nil && slices.Contains([]string{"adopt", "label", "want", "unwant", "node", "readd", "twin"}, verb) {
		w.after(time.Minute, func() { w.play(s) }) // operators try again
		return
	}
	switch verb {
	case "adopt":
		m := w.names[rest[0]]
		if m == nil {
			m = w.rack(rest[0])
		}
		w.refused(m.adopt(labels(rest[1:])))
	case "want":
		w.refused(w.want(rest[0], number(rest[1])))
	case "unwant":
		delete(w.books.wanted, rest[0])
		delete(w.books.reached, rest[0])
		w.refused(w.plane.as(operator).RemoveModule(w.ctx, rest[0]))
	case "net":
		n, err := parseNetwork(rest)
		w.must(err)
		w.network = n
		w.books.wrong(w)
	case "kill":
		w.books.wrong(w)
		w.plane.die(span(rest[0]))
	case "kill_on_commit":
		w.books.wrong(w)
		w.plane.kill = span(rest[0])
	case "off":
		if rest[0] == "all" {
			w.load.returned = w.now.Add(span(rest[1]) + 30*time.Minute).Unix()
		}
		for _, m := range w.all {
			if rest[0] == "all" || rest[0] == m.name {
				m.powerOff()
				w.after(span(rest[1])+w.between(time.Minute, 3*time.Minute), m.powerOn)
			}
		}
	default:
		if m := w.names[rest[0]]; m != nil && m.nodeID != "" {
			m.play(verb, rest[1:])
		}
	}
}

func (w *World) refused(err error) {
	if err != nil {
		w.say("refused: %s", w.named(err.Error()))
	}
}

func number(text string) int         { n, _ := strconv.Atoi(text); return n }
func span(text string) time.Duration { d, _ := time.ParseDuration(text); return d }

func (w *World) want(name string, version int) error {
	m, err := wanted(name, version)
	w.must(err)
	if _, err = w.plane.as(operator).AddModule(w.ctx, muster.NewModule{Module: *m}); err == nil {
		w.books.wanted[name] = m
	}
	return err
}

// play does what a step says of one machine.
func (m *machine) play(verb string, rest []string) {
	w := m.w
	switch verb {
	case "label":
		_, err := w.plane.as(operator).LabelNode(w.ctx, m.nodeID, muster.LabelChange{Set: labels(rest)})
		w.refused(err)
	case "node":
		w.refused(m.policy(rest[0]))
	case "readd":
		w.refused(m.readd(labels(rest)))
	case "twin":
		m.twin()
	case "away":
		m.leave(span(rest[0]))
	case "cut":
		m.node.Ground.Faults.PowerCutAt = number(rest[0])
	case "lie":
		w.books.wrong(w)
		m.node.Ground.Faults.Lies = number(rest[0])
	case "jump":
		m.skew += span(rest[0])
	case "sick":
		w.refused(m.sicken(rest[0], span(rest[1])))
	case "pull":
		disks := m.node.Facts.Disks
		m.node.Facts.Disks = slices.DeleteFunc(slices.Clone(disks), func(d muster.Disk) bool { return d.Path == diskOf(0, number(rest[0])).Path })
		w.books.wrong(w)
		m.nudge()
	case "plug":
		n := number(rest[0])
		if !slices.ContainsFunc(m.node.Facts.Disks, func(d muster.Disk) bool { return d.Path == diskOf(0, n).Path }) {
			m.node.Facts.Disks = append(slices.Clone(m.node.Facts.Disks), diskOf(slices.Index(w.all, m)+1, n))
		}
		m.nudge()
	}
}

// adopt lets a machine in by a token, names it and gives it power.
func (m *machine) adopt(labels map[string]string) error {
	w := m.w
	if m.nodeID != "" {
		return fmt.Errorf("%s is a node", m.name)
	}
	reply, err := m.enrol(m.node.Facts.Serial, m.node.Facts.MACs)
	if err != nil {
		return err
	}
	m.nodeID, m.key, m.gone = reply.NodeID, reply.APIKey, false
	w.nodes[m.nodeID] = m
	if len(labels) > 0 {
		if _, err = w.plane.as(operator).LabelNode(w.ctx, m.nodeID, muster.LabelChange{Set: labels}); err != nil {
			return err
		}
	}
	m.powerOn()
	return nil
}

// enrol redeems a token for a machine of this UUID.
func (m *machine) enrol(serial string, macs []string) (r muster.EnrolReply, err error) {
	w := m.w
	issued, err := w.plane.as(operator).IssueEnrolmentToken(w.ctx, muster.NewEnrolmentToken{})
	if err != nil {
		return r, err
	}
	t, err := enrol.Decode(issued.Token)
	if err != nil {
		return r, err
	}
	facts := m.node.Facts
	facts.Serial, facts.MACs, facts.AdminMAC = serial, macs, macs[0]
	return w.plane.as(muster.Caller{Source: m.node.Address}).Enrol(w.ctx, muster.EnrolRequest{
		TokenID: t.ID, Secret: base64.RawURLEncoding.EncodeToString(t.Secret), Nonce: fmt.Sprintf("%032x", w.dice.Uint64()),
		ServerUUID: facts.UUID, Hostname: facts.Hostname, Sysinfo: facts.Sysinfo()})
}

func (m *machine) policy(event string) error {
	s := m.w.plane.as(operator)
	if event != "expunge" {
		_, err := s.RaiseNode(m.w.ctx, m.nodeID, muster.Event(event))
		return err
	}
	_, err := s.ExpungeNode(m.w.ctx, m.nodeID, muster.Expunge{Confirm: m.node.Facts.UUID, Reason: "a scenario says so"})
	if err == nil {
		m.leaves()
	}
	return err
}

// leaves has a machine count for nothing any more: an operator said so.
func (m *machine) leaves() {
	m.gone = true
	m.w.books.power(m)
}

// readd wipes a machine that has left the fleet and lets it in again.
func (m *machine) readd(labels map[string]string) error {
	w := m.w
	s := w.plane.as(operator)
	n, err := s.Node(w.ctx, m.nodeID)
	if err != nil {
		return err
	}
	if n.State != muster.NodeDecommissioned {
		return fmt.Errorf("%s has not left: it is %s, %s", m.name, n.Policy, n.State)
	}
	if n.Expunged != nil {
		if _, err := s.RaiseRegistration(w.ctx, m.node.Facts.UUID, lifecycle.Readmit); err != nil {
			return err
		}
	}
	m.powerOff()
	m.wiped()
	m.nodeID, m.identity.Certificate, m.away = "", nil, false
	return m.adopt(labels)
}

// twin has another machine come with the same UUID. It must not get anything of
// the one that is there.
func (m *machine) twin() {
	r, err := m.enrol(m.node.Facts.Serial+"T", []string{strings.Replace(m.node.Facts.MACs[0], "52:54", "52:55", 1)})
	m.w.refused(err)
	if err == nil && r.NodeID == m.nodeID && !m.gone {
		m.w.fail("a stranger with the UUID of %s was let in as its node", m.name)
	}
}

// leave cuts a machine's network for a time.
func (m *machine) leave(d time.Duration) {
	w := m.w
	if m.away {
		return
	}
	m.away = true
	w.books.bad++
	turn := m.turn
	if m.poll != nil {
		m.hangUp()
		w.unanswered(m, turn, ask{what: sim.CallNext})
	}
	w.after(d, func() {
		m.away = false
		w.books.bad--
		w.books.wrong(w)
	})
}
