package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster.internal"
)

// A LabConfig says what `muster lab` shows.
type LabConfig struct {
	Dir      string // where everything is kept; made anew
	Programs string // directory of the other programs; empty: that of the running one
	Machines int
	Firmware string // one of FirmwareWords
	Auto     bool   // approve whatever can be approved
	Out      io.Writer
}

// RunLab starts a site with virtual machines, tells what happens, and keeps it
// up until ctx ends.
func RunLab(ctx context.Context, c LabConfig) error {
	kinds, err := c.complete()
	if err != nil {
		return err
	}
	v := &viewer{out: c.Out, start: time.Now()}
	setup, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	s, err := NewSite(setup, SiteConfig{Dir: c.Dir, Programs: c.Programs, Arches: arches(kinds), Say: v, Watch: v.console})
	if err != nil {
		return err
	}
	defer s.Close()
	names, pools := map[string]string{}, map[string]muster.PoolKind{}
	for n := range c.Machines {
		m, err := s.NewMachine(setup, n+1, kinds[n%len(kinds)])
		if err != nil {
			return err
		}
		m.Lifetime = 24 * time.Hour
		names[m.UUID], names[m.MAC], pools[m.UUID] = m.Name, m.Name, m.Pool()
		if err := m.PowerOn(); err != nil {
			return err
		}
		v.say("%s is switched on: serial number %s, UUID %s, MAC %s", m.Name, m.Serial, m.UUID, m.MAC)
	}
	dir, err := filepath.Abs(s.Dir) // another terminal is elsewhere
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, labHelp, s.URL, filepath.Join(dir, "lab.env"), s.program("muster"), s.program("muster"),
		filepath.Join(dir, "*", "console.log"), s.Name)
	follow(ctx, s, v, names, pools, c.Auto)
	v.say("switching everything off")
	return nil
}

const labHelp = `
The control plane is at %s. In another terminal:
  . %s
  %s registration ls
  %s registration approve-setup LAB00001
What machines show on their serial lines: %s
A shell on the segment: ip netns exec %s sh
^C ends everything.

`

func (c *LabConfig) complete() ([]Firmware, error) {
	kinds, err := firmwareSet(c.Firmware)
	if err != nil {
		return nil, err
	}
	if c.Machines < 1 || c.Machines > 64 {
		return nil, fmt.Errorf("%d machines are not between 1 and 64", c.Machines)
	}
	if c.Dir == "" {
		return nil, errors.New("the lab needs a directory")
	}
	if missing := Missing(kinds...); len(missing) > 0 {
		return nil, fmt.Errorf("the lab needs %s; `make packages` installs what is missing", strings.Join(missing, ", "))
	}
	if c.Programs == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		c.Programs = filepath.Dir(self)
	}
	for _, p := range []string{"musterd", "muster-booter", "muster-host"} {
		if _, err := os.Stat(filepath.Join(c.Programs, p)); err != nil {
			return nil, fmt.Errorf("the lab runs the real programs: %w; `make build` makes them", err)
		}
	}
	if err := clearLab(c.Dir); err != nil {
		return nil, err
	}
	return kinds, os.WriteFile(filepath.Join(c.Dir, labMark), nil, 0o644)
}

// labMark is in every directory that a lab has made, so that only such a one
// is ever cleared.
const labMark = ".muster-lab"

func clearLab(dir string) error {
	es, err := os.ReadDir(dir)
	if err == nil && len(es) > 0 {
		if _, err := os.Stat(filepath.Join(dir, labMark)); err != nil {
			return fmt.Errorf("%s is not empty and was not made by a lab: name another directory", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755)
}

// A viewer writes what happens, a line at a time, from several goroutines.
type viewer struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func (v *viewer) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.out, "%7.1f  %s\n", time.Since(v.start).Seconds(), fmt.Sprintf(format, args...))
}

func (v *viewer) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		v.say("%s", strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// console shows the turns of a boot, and what programs warn of.
func (v *viewer) console(who string, l Line) {
	if strings.Contains(l.Text, "level=WARN") || strings.Contains(l.Text, "level=ERROR") {
		v.say("%-12s %s", who, l.Text)
		return
	}
	for _, st := range consoleStages {
		if st.re.MatchString(l.Text) {
			v.say("%-12s %s", who, l.Text)
			return
		}
	}
}

// follow tells what the control plane writes into its audit, until ctx ends.
func follow(ctx context.Context, s *Site, v *viewer, names map[string]string, pools map[string]muster.PoolKind, auto bool) {
	after := int64(0)
	for ctx.Err() == nil {
		es, err := s.Operator.Audit(ctx, muster.AuditFilter{After: after, Wait: 2 * time.Second})
		if err != nil {
			if ctx.Err() == nil {
				v.say("the control plane does not answer: %v", err)
				sleep(ctx, time.Second)
			}
			continue
		}
		for _, e := range es {
			after = e.Seq
			name, text := inWords(e, names)
			v.say("%-12s control: %s", name, printable(text))
		}
		if auto {
			approveAll(ctx, s, v, pools)
		}
	}
}

// approveAll approves what can be approved and has not failed before.
func approveAll(ctx context.Context, s *Site, v *viewer, pools map[string]muster.PoolKind) {
	rs, err := s.Operator.Registrations(ctx, muster.RegistrationFilter{State: muster.AwaitingSetup})
	if err != nil {
		return
	}
	for _, r := range rs {
		if r.SurveyedAt == nil || r.LastSetupError != "" {
			continue
		}
		how := muster.SetupRequest{}
		if pools[r.ServerUUID] == muster.Btrfs {
			how.Pool = muster.Btrfs
		}
		plan, err := s.Operator.PlanSetup(ctx, r.ServerUUID, how)
		if err == nil {
			_, err = s.Operator.ApproveSetup(ctx, r.ServerUUID, muster.SetupApproval{SetupRequest: how, Plan: plan.Digest, Confirm: r.Serial})
		}
		if err != nil {
			v.say("%s cannot be approved: %v", r.ServerUUID, err)
		}
	}
}
