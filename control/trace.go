package control

import (
	"context"
	"errors"
	"fmt"

	"muster.internal"
	"muster.internal/explain"
)

// Bounds of what a booter may say in a trace.
const (
	maxTraceText = 256
	maxTraceWhy  = 1024
)

// ReportTraces checks what a booter reports, whole.
func (s session) ReportTraces(ctx context.Context, booter string, ts []muster.BootTrace) error {
	if err := checkBooter(booter); err != nil {
		return err
	}
	if len(ts) > muster.TraceBatch {
		return muster.Invalid("traces", "a report holds up to %d machines", muster.TraceBatch)
	}
	for i, v := range ts {
		at := fmt.Sprintf("traces[%d]", i)
		if _, err := muster.ParseMAC(v.MAC); err != nil {
			return muster.Invalid(at+".mac", "%v", err)
		}
		if len(v.Steps) > muster.TraceSteps {
			return muster.Invalid(at+".steps", "a trace holds up to %d steps", muster.TraceSteps)
		}
		for _, st := range v.Steps {
			if len(st.Packet) > muster.TracePacket || len(st.Answer) > muster.TracePacket {
				return muster.Invalid(at+".steps", "of a packet up to %d bytes are kept", muster.TracePacket)
			}
			for _, text := range []string{st.Via, st.Asked, st.Source, st.Interface, st.To, st.Reason, st.Rule, st.Quirk, st.Mode, st.Stage,
				st.Loader, st.Address, st.Outcome, string(st.Record)} {
				if len(text) > maxTraceText {
					return muster.Invalid(at+".steps", "a word of a step is longer than %d bytes", maxTraceText)
				}
			}
			if len(st.Why) > maxTraceWhy || st.Image != nil && len(st.Image.Name)+len(st.Image.Digest) > maxTraceText {
				return muster.Invalid(at+".steps", "a step says more than %d bytes", maxTraceWhy)
			}
		}
	}
	return s.store.KeepTraces(ctx, s.now(), s.by, booter, ts)
}

// ExplainBoot gathers what is known of a NIC and says what it comes to.
func (s session) ExplainBoot(ctx context.Context, mac string) (muster.BootExplanation, error) {
	e := explain.Evidence{Now: s.now().UTC()}
	var err error
	if e.Record, err = s.store.BootRecord(ctx, mac); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Policy, err = s.store.BootPolicy(ctx); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Traces, err = s.store.Traces(ctx, mac); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Booters, err = s.store.Booters(ctx); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Head, err = s.store.Head(ctx); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Machine, err = s.machineOf(ctx, e.Record); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Machine != nil && e.Machine.State == muster.Approved && e.Machine.NodeID != "" {
		d, err := s.store.Node(ctx, e.Machine.NodeID)
		if err != nil {
			return muster.BootExplanation{}, err
		}
		e.Orders = d.Orders
	}
	if e.Waiting, err = s.store.Newcomers(ctx, mac); err != nil {
		return muster.BootExplanation{}, err
	}
	if e.Window, err = s.store.Window(ctx, e.Now, muster.EnrollmentWindow); err != nil {
		return muster.BootExplanation{}, err
	}
	e.Image = func(digest string) *muster.Image {
		i, err := s.store.Image(ctx, digest)
		if err != nil {
			return nil
		}
		return &i
	}
	var lost error
	e.Tombstone = func(uuid string) *muster.Expunged {
		x, err := s.store.Tombstone(ctx, uuid)
		lost = errors.Join(lost, err)
		return x
	}
	x := explain.Boot(e)
	return x, lost
}

// machineOf is the registration that a boot record belongs to: the one that it
// is bound to, or the one that announced itself from this NIC last.
func (s session) machineOf(ctx context.Context, r muster.BootRecord) (*muster.Registration, error) {
	uuid := r.ServerUUID
	if uuid == "" {
		var err error
		if uuid, err = s.store.MachineOfCard(ctx, r.MAC); err != nil || uuid == "" {
			return nil, err
		}
	}
	reg, err := s.store.Registration(ctx, uuid)
	if muster.IsCode(err, muster.CodeNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if at, ok := s.store.LastHeard(uuid); ok && at.After(reg.LastSeen) {
		reg.LastSeen = at
	}
	return &reg, nil
}
