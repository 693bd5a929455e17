package booter

import (
	"fmt"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/setup"
)

// An action is what is to be done about one machine's install.
type action int

const (
	actWait   action = iota // nothing now
	actTake                 // ask for the bundle
	actSend                 // send the script
	actFail                 // it ended badly, for the reason given
	actReport               // tell the control plane how it ended
	actForget               // it is over, for everybody
)

var actionNames = [...]string{"wait", "take", "send", "fail", "report", "forget"}

func (a action) String() string { return actionNames[a] }

// A situation is all that the decision depends on.
type situation struct {
	entry   *entry          // what the journal remembers; nil: nothing
	install *muster.Install // what the control plane wants; nil: nothing
	fresh   bool            // the directory is at least as new as the entry
	alive   bool            // the install's session is live, here, and belongs to that machine
	holding bool            // the bundle of the entry's epoch is in memory
	running bool            // a script of ours still runs in that boot of the machine
	seq     int64           // of the directory
	now     time.Time
}

// Reasons for people. Each says whether anything was run.
const (
	whyNothingRan = "the connection to the machine ended, or the booter was restarted, before the script was sent; nothing was run on the machine"
	whySilent     = "the machine gave no answer in time; it may have been cut off while it built its pool"
	whyBusy       = "the script of an earlier approval still runs on the machine; nothing more was sent to it; restart the machine, then approve again"
)

// keepReported is how long an end that was reported is remembered at most,
// should the feed never catch up.
const keepReported = time.Hour

// decide is the whole logic of the install driver: what the journal, the
// control plane and the live sessions together allow.
//
// The script of an epoch is sent once: only from "taken", which exists only in
// the process that took the bundle; and to the session that the approval is
// bound to, which ends with the process at the latest.
func decide(s situation) (action, string) {
	e, in := s.entry, s.install
	if e == nil {
		switch {
		case in == nil || in.Taken || !s.alive:
			return actWait, "" // somebody else's, or the machine is not here
		case s.running:
			return actFail, whyBusy
		}
		return actTake, ""
	}
	if in != nil && in.Epoch < e.Epoch { // old news
		in, s.fresh = nil, false
	}
	over := in == nil && s.fresh || in != nil && in.Epoch > e.Epoch
	switch e.Step {
	case stepReported:
		if over || s.now.Sub(e.At) > keepReported {
			return actForget, ""
		}
		return actWait, ""
	case stepOutcome:
		return actReport, ""
	}
	if over { // expired, voided, or proved by the machine itself
		return actForget, ""
	}
	switch e.Step {
	case stepTaking:
		if s.alive { // the answer got lost, in this very process
			return actTake, ""
		}
		return actFail, whyNothingRan
	case stepTaken:
		if s.alive && s.holding {
			return actSend, ""
		}
		return actFail, whyNothingRan
	}
	if s.now.After(e.GiveUp) {
		return actFail, whySilent
	}
	return actWait, ""
}

// maxLog is how much of a script's words is kept, in bytes.
const maxLog = 16 << 10

// outcome reads a script's answer. Only the sentinel of this epoch means
// success, whatever the exit status says.
func outcome(epoch int64, r busReply) (o muster.SetupOutcome, success bool) {
	o = muster.SetupOutcome{Epoch: epoch, Log: scriptLog(r), Stdout: withoutProof(r.Stdout, maxStream), Stderr: withoutProof(r.Stderr, maxStream)}
	e, proof, ok := setup.ParseSentinel(r.Stdout)
	if ok && e == epoch {
		o.Proof = proof
		return o, true
	}
	if reason, is := setup.ParseFailure(r.Stdout); is {
		o.Reason = reason
	} else if reason, is := setup.ParseFailure(r.Stderr); is {
		o.Reason = reason
	} else if ok {
		o.Reason = fmt.Sprintf("the machine reports the success of setup %d, which is not the one that was sent (%d)", e, epoch)
	} else {
		o.Reason = setup.CutReason(fmt.Sprintf("the script ended with status %s and without a word of success: %s", r.Status, lastWords(r)))
	}
	if o.Reason == "" {
		o.Reason = "the script failed and gave no reason"
	}
	return o, false
}

func lastWords(r busReply) string {
	for _, s := range []string{r.Stderr, r.Stdout} {
		if s = strings.TrimSpace(s); s != "" {
			return tail(s, 300)
		}
	}
	return "it said nothing"
}

// maxStream is how much is kept of each of the script's streams, in bytes.
const maxStream = 8 << 10

// scriptLog is the end of what a script said, without the proof in it.
func scriptLog(r busReply) string {
	log := ""
	for _, s := range []string{r.Stdout, r.Stderr} {
		if log += withoutProof(s, 2*maxLog); log != "" && !strings.HasSuffix(log, "\n") {
			log += "\n"
		}
	}
	return tail(log, maxLog)
}

// withoutProof is the end of a stream, at most n bytes, without the lines that
// hold a proof.
func withoutProof(s string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(tail(s, 2*n)) {
		if !strings.Contains(line, "proof=") {
			b.WriteString(line)
		}
	}
	return tail(strings.ReplaceAll(strings.ToValidUTF8(b.String(), "\ufffd"), "\x00", ""), n)
}
