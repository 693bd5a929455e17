package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/layout"
	"muster.internal/setup"
)

// A Progress tells where a setup is. Steps count from 1.
type Progress struct {
	Step, Of int
	Name     string // one short word, for programs
	Text     string
}

// A Result is how a setup ended: the one line that the booter looks for, and
// the exit status.
type Result struct {
	Line string
	Exit int
	OK   bool
}

// A job is one setup on its way.
type job struct {
	Hands
	order  setup.Order
	bundle setup.Bundle
	plan   muster.SetupPlan // with the paths that the disks have now
	own    *Pool            // to be replaced
	built  bool             // the new pool is there, and open
}

// step is one act of a setup; text is what a person at the screen reads.
type step struct {
	name, text string
	do         func(*job) error
}

// steps is the order of a setup. Everything that can refuse comes before
// anything that destroys; the credential is the last thing written.
var steps = []step{
	{"clock", "setting the clock", (*job).clock},
	{"bundle", "opening the setup bundle", (*job).open},
	{"disks", "comparing the disks with the approved plan", (*job).disks},
	{"pools", "looking for existing pools", (*job).pools},
	{"dry-run", "trying the pool without building it", func(j *job) error { return j.DryRun(j.plan) }},
	{"give-up", "giving up this machine's old pool", (*job).giveUp},
	{"wipe", "clearing the planned disks", func(j *job) error { return j.Wipe(j.plan) }},
	{"build", "building the pool", (*job).build},
	{"stamp", "stamping the pool", func(j *job) error { return j.Stamp(j.plan) }},
	{"credential", "storing the credential", (*job).credential},
	{"close", "closing the pool", func(j *job) error { return j.Export(j.plan) }},
}

// Setup does what an order says, or refuses. It says each step before it does
// it. A power cut at any point leaves a machine that Boot and another approval
// can deal with.
func Setup(o setup.Order, h Hands, say func(Progress)) Result {
	j := &job{Hands: h, order: o}
	for i, s := range steps {
		say(Progress{i + 1, len(steps), s.name, s.text})
		if err := s.do(j); err != nil {
			if j.built { // closed, so that a survey sees what is there
				err = errors.Join(err, j.Export(j.plan))
			}
			return Failed(fmt.Errorf("%s: %w", s.text, err))
		}
	}
	return Result{
		Line: setup.Sentinel(o.Epoch, setup.Proof(j.bundle.ProofKey, o.ServerUUID, o.Epoch)),
		Exit: setup.ExitReboot, OK: true,
	}
}

// Failed is the result of a setup that did not happen.
func Failed(err error) Result { return Result{Line: setup.FailureLine(err.Error()), Exit: 1} }

// clock fails closed: with a wrong clock no certificate can be judged, and the
// machine would come up unable to speak to anybody.
func (j *job) clock() error {
	if err := j.SetClock(j.order.Time); err != nil {
		return err
	}
	if off := j.Now().Sub(j.order.Time); off < -clockTolerance || off > clockTolerance {
		return fmt.Errorf("it was set to %s, and reads %s", j.order.Time.Format(time.RFC3339), j.Now().UTC().Format(time.RFC3339))
	}
	return nil
}

func (j *job) open() error {
	if me := j.ServerUUID(); !muster.SameUUID(me, j.order.ServerUUID) {
		return fmt.Errorf("the order is for machine %s, this is %s", j.order.ServerUUID, me)
	}
	b, err := setup.Open(j.PrivateKey(), j.order.Bundle)
	if err != nil {
		return err
	}
	j.bundle = b
	return j.order.Check(b)
}

// disks finds each planned disk again by its identity, wherever it is now, and
// refuses when one differs from what the operator saw.
func (j *job) disks() error {
	found, err := j.Disks()
	if err != nil {
		return err
	}
	usable, _ := layout.Distinct(found)
	byID := map[string]muster.Disk{}
	for _, d := range usable {
		byID[d.Identity()] = d
	}
	var wrong []string
	j.plan = onto(j.order.Plan, func(d muster.Disk) muster.Disk {
		now, there := byID[d.Identity()]
		switch {
		case d.Identity() == "":
			wrong = append(wrong, fmt.Sprintf("%s cannot be recognised again", d.Path))
		case !there:
			wrong = append(wrong, fmt.Sprintf("%s (%s) is gone", d.Path, d.Describe()))
		default:
			if why := layout.Same(d, now); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s (%s): %s", d.Path, d.Describe(), why))
			}
		}
		return now
	})
	if len(j.plan.Members()) == 0 {
		wrong = append(wrong, "the plan has no disks")
	}
	if len(wrong) > 0 {
		return fmt.Errorf("they are not what was approved: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// onto makes the same plan with other disks.
func onto(p muster.SetupPlan, now func(muster.Disk) muster.Disk) muster.SetupPlan {
	all := func(ds []muster.Disk) []muster.Disk {
		var out []muster.Disk
		for _, d := range ds {
			out = append(out, now(d))
		}
		return out
	}
	vdevs := p.VDevs
	p.VDevs = nil
	for _, v := range vdevs {
		p.VDevs = append(p.VDevs, muster.VDev{Type: v.Type, Disks: all(v.Disks)})
	}
	p.Spares, p.Logs, p.Cache = all(p.Spares), all(p.Logs), all(p.Cache)
	return p
}

// pools refuses when there is a pool by the name of ours that is not this
// machine's, or that the approval does not replace.
func (j *job) pools() error {
	pools, err := j.Pools()
	if err != nil {
		return err
	}
	for _, p := range pools {
		if p.Name != muster.PoolName {
			continue
		}
		switch {
		case p.Stamp == "":
			return fmt.Errorf("there is a %s pool '%s' (guid %s) without a stamp: it is not this machine's to replace", p.Kind, p.Name, p.GUID)
		case !muster.SameUUID(p.Stamp, j.order.ServerUUID):
			return fmt.Errorf("there is a %s pool '%s' (guid %s) of machine %s: it is not this machine's to replace", p.Kind, p.Name, p.GUID, p.Stamp)
		case !j.plan.Rebuild:
			return fmt.Errorf("this machine already has its %s pool '%s' (guid %s), and the approval does not say rebuild", p.Kind, p.Name, p.GUID)
		case j.own != nil:
			return fmt.Errorf("two pools '%s' (guid %s and %s) carry this machine's stamp: take one of them out", p.Name, j.own.GUID, p.GUID)
		}
		if !shows(j.plan, p) {
			return fmt.Errorf("this machine's %s pool '%s' (guid %s) was not there when the setup was approved: look at the plan again", p.Kind, p.Name, p.GUID)
		}
		own := p
		j.own = &own
	}
	return nil
}

// shows tells whether a plan names a pool as on one of the disks, used or not,
// that the operator saw: a rebuild gives up no other.
func shows(p muster.SetupPlan, pool Pool) bool {
	seen := p.Members()
	for _, u := range p.Unused {
		seen = append(seen, u.Disk)
	}
	return slices.ContainsFunc(seen, func(d muster.Disk) bool {
		return slices.ContainsFunc(d.Contents, func(c muster.Content) bool { return c.Name == pool.Name && c.GUID == pool.GUID })
	})
}

func (j *job) giveUp() error {
	if j.own == nil {
		return nil
	}
	return j.Destroy(*j.own)
}

func (j *job) build() error {
	err := j.Create(j.plan)
	j.built = err == nil
	return err
}

func (j *job) credential() error {
	c := j.bundle.Credential()
	c.Hostname = j.order.Hostname
	return j.WriteCredential(c)
}
