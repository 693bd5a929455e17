package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"muster.internal/resource"
)

const (
	// callWithin is the time for one question to systemd.
	callWithin = 30 * time.Second
	// jobWithin is the time for a unit to start or stop; most units have a
	// shorter one of their own, and then systemd says so.
	jobWithin = 10 * time.Minute
	// settle is how long a unit is watched after it has started: many a program
	// finds out only then that it cannot work.
	settle = 500 * time.Millisecond
)

// services is the hand for services: systemd, over its private socket, which
// needs no message bus.
type services struct{ bus *dbus.Conn }

func newServices() *services { return &services{} }

// connect is a connection to systemd that works: an upgrade of systemd ends
// the one before.
func (s *services) connect() (*dbus.Conn, error) {
	if s.bus != nil && s.bus.Connected() {
		return s.bus, nil
	}
	s.close()
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, errors.New("this machine was not started by systemd, and the host knows no other service manager")
	}
	bus, err := dbus.NewSystemdConnectionContext(context.Background())
	if err != nil {
		return nil, fmt.Errorf("systemd does not answer at /run/systemd/private: %w", err)
	}
	s.bus = bus
	return bus, nil
}

func (s *services) close() {
	if s.bus != nil {
		s.bus.Close()
		s.bus = nil
	}
}

// A unit is what systemd knows of one.
type unit struct {
	load, loadError      string
	active, sub          string
	file                 string // its unit file's state: enabled, static, …
	wanted, stale        bool
	serviceType, result  string
	exitCode, exitStatus int32
	unmet                string // the condition for which systemd passed over its last start
}

// exitedCode is CLD_EXITED: the status is an exit status, not a signal.
const exitedCode = 1

// look reads a unit; nil when there is none.
func (s *services) look(name string) (*unit, error) {
	bus, err := s.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	all, err := bus.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("systemd does not say how %s is: %w", name, err)
	}
	u := &unit{}
	for key, to := range map[string]*string{"LoadState": &u.load, "ActiveState": &u.active, "SubState": &u.sub, "UnitFileState": &u.file, "Result": &u.result, "Type": &u.serviceType} {
		*to, _ = all[key].(string)
	}
	u.stale, _ = all["NeedDaemonReload"].(bool)
	for _, by := range []string{"WantedBy", "RequiredBy"} {
		units, _ := all[by].([]string)
		u.wanted = u.wanted || len(units) > 0
	}
	u.exitCode, _ = all["ExecMainCode"].(int32)
	u.exitStatus, _ = all["ExecMainStatus"].(int32)
	if tried, _ := all["ConditionTimestamp"].(uint64); tried != 0 && all["ConditionResult"] == false {
		u.unmet = unmet(all["Conditions"])
	}
	if why, _ := all["LoadError"].([]any); len(why) == 2 {
		u.loadError, _ = why[1].(string)
	}
	if u.load == "not-found" && u.active == "inactive" {
		return nil, nil
	}
	return u, nil
}

// unmet is the first condition that does not hold, as its unit file has it. Of
// each, systemd tells its name, two signs, what it asks for, and how it went.
func unmet(conditions any) string {
	all, _ := conditions.([][]any)
	for _, c := range all {
		if len(c) != 5 {
			continue
		}
		name, _ := c[0].(string)
		not, _ := c[2].(bool)
		of, _ := c[3].(string)
		if went, _ := c[4].(int32); went < 0 {
			return name + "=" + map[bool]string{true: "!"}[not] + of
		}
	}
	return "a condition in its unit file"
}

// enabled tells whether it starts with the machine. A script of old times has
// no unit file that says so; what wants it does.
func (u *unit) enabled() bool { return u.file == "enabled" || u.file == "generated" && u.wanted }

func (u *unit) running() bool {
	return u.active == "active" || u.active == "reloading" || u.active == "refreshing"
}

// read tells whether a service starts with the machine, and whether it runs.
func (s *services) read(name string) (resource.State, error) {
	u, err := s.look(name)
	if u == nil || err != nil {
		return nil, err
	}
	return resource.State{resource.FieldEnabled: resource.YesNo(u.enabled()), resource.FieldRunning: resource.YesNo(u.running())}, nil
}

// put makes a service as declared.
func (s *services) put(r *resource.Service) error {
	return s.set(r.Name, r.Enabled == nil || *r.Enabled, r.Running == nil || *r.Running)
}

// restore makes an adopted service as it was found.
func (s *services) restore(name string, found resource.State) error {
	return s.set(name, found[resource.FieldEnabled] == resource.Yes, found[resource.FieldRunning] == resource.Yes)
}

// stop ends a service and keeps it from starting with the machine. Its unit
// file stays.
func (s *services) stop(name string) error {
	u, err := s.look(name)
	if u == nil || err != nil {
		return err
	}
	return s.set(name, false, false)
}

// halt ends a service that starts with the machine all the same.
func (s *services) halt(name string) error {
	u, err := s.look(name)
	if u == nil || err != nil {
		return err
	}
	return s.set(name, u.enabled(), false)
}

func (s *services) set(name string, enabled, running bool) error {
	u, err := s.fresh(name)
	if err != nil {
		return err
	}
	if enabled || running {
		if err := u.usable(name); err != nil {
			return err
		}
	}
	if enabled != u.enabled() {
		if err := s.enable(name, enabled, u); err != nil {
			return err
		}
	}
	switch {
	case running && !u.running():
		return s.job(name, "start", s.bus.StartUnitContext)
	case !running && u.active != "inactive" && u.active != "failed":
		return s.job(name, "stop", s.bus.StopUnitContext)
	}
	return nil
}

// fresh is a unit as its file says now: systemd is told to read all of them
// anew when this one has changed, or is not known yet.
func (s *services) fresh(name string) (*unit, error) {
	u, err := s.look(name)
	if err != nil || u != nil && !u.stale {
		return u, err
	}
	if err := s.reload(); err != nil {
		return nil, err
	}
	if u, err = s.look(name); err == nil && u == nil {
		err = fmt.Errorf("this machine has no unit %s; the package that brings it, or its unit file, must be declared before it", name)
	}
	return u, err
}

func (s *services) reload() error {
	bus, err := s.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	if err := bus.ReloadContext(ctx); err != nil {
		return fmt.Errorf("systemd cannot read its unit files anew: %w", err)
	}
	return nil
}

// usable tells why a unit cannot run at all.
func (u *unit) usable(name string) error {
	switch u.load {
	case "loaded":
		return nil
	case "masked":
		return fmt.Errorf("%s is masked: somebody has forbidden it to start, and the host does not overrule that; systemctl unmask %s does", name, name)
	}
	return fmt.Errorf("systemd cannot use the unit file of %s (%s): %s", name, u.load, u.loadError)
}

// enable makes a service start with the machine, or not.
func (s *services) enable(name string, yes bool, u *unit) error {
	if u.file == "generated" { // a script of old times, which systemctl alone can do
		word := map[bool]string{true: "enable", false: "disable"}[yes]
		out, err := runBounded([]string{"systemctl", "--no-ask-password", word, name}, callWithin, nil)
		return withOutput(err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	if !yes {
		if _, err := s.bus.DisableUnitFilesContext(ctx, []string{name}, false); err != nil {
			return fmt.Errorf("%s cannot be disabled: %w", name, err)
		}
		return s.reload()
	}
	may, _, err := s.bus.EnableUnitFilesContext(ctx, []string{name}, false, false)
	if err != nil {
		return fmt.Errorf("%s cannot be enabled: %w", name, err)
	}
	if !may && u.file != "indirect" {
		return fmt.Errorf("%s cannot be enabled: its unit file has no [Install] section, so that it starts only when another unit wants it; declare \"enabled\": false, or the unit that wants it", name)
	}
	return s.reload()
}

// restart starts a service anew, as its unit file says now.
func (s *services) restart(name string) error {
	u, err := s.fresh(name)
	if err == nil {
		err = u.usable(name)
	}
	if err != nil {
		return err
	}
	return s.job(name, "restart", s.bus.RestartUnitContext)
}

// job has systemd do one thing with a unit, and waits for how it ends.
func (s *services) job(name, what string, call func(context.Context, string, string, chan<- string) (int, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), jobWithin)
	defer cancel()
	ended := make(chan string, 1)
	if _, err := call(ctx, name, "replace", ended); err != nil {
		return fmt.Errorf("systemd does not %s %s: %w", what, name, err)
	}
	result := ""
	select {
	case result = <-ended:
	case <-ctx.Done():
		return fmt.Errorf("%s: systemd has not ended the %s within %v; see systemctl list-jobs", name, what, jobWithin)
	}
	if what == "stop" && result == "done" {
		return nil
	}
	u, err := s.settled(name, result)
	switch {
	case err != nil:
		return err
	case u == nil:
		return fmt.Errorf("%s is gone after its %s", name, what)
	case result == "done" && u.running():
		return nil
	}
	return u.why(name, what, result)
}

// settled is a unit a moment after its job: as soon as it is not running, or
// still running when that moment is over.
func (s *services) settled(name, result string) (u *unit, err error) {
	for until := time.Now().Add(settle); ; time.Sleep(settle / 10) {
		u, err = s.look(name)
		if err != nil || u == nil || result != "done" || !u.running() || time.Now().After(until) {
			return u, err
		}
		if !slices.Contains([]string{"simple", "exec", "idle"}, u.serviceType) {
			return u, nil // it has said itself that it is up
		}
	}
}

// reasons are what the results of a service mean.
var reasons = map[string]string{
	"exit-code": "its program failed", "signal": "its program was ended by a signal", "core-dump": "its program crashed",
	"timeout": "it did not come up in its time", "watchdog": "it stopped answering its watchdog", "oom-kill": "the machine's memory ran out",
	"start-limit-hit": "it failed too often in a short time, and systemd rests; systemctl reset-failed lets it try again",
	"resources":       "systemd could not prepare it", "protocol": "it did not say that it was up", "condition": "a condition in its unit file does not hold",
}

// why explains a unit that is not as it should be after a job.
func (u *unit) why(name, what, result string) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: the %s", name, what)
	switch {
	case result == "dependency":
		b.WriteString(" failed, because a unit that it needs did not start")
	case result == "skipped":
		b.WriteString(" was skipped: a condition in its unit file does not hold")
	case result == "done" && u.active == "inactive" && u.unmet != "":
		fmt.Fprintf(b, " was passed over by systemd, because %s does not hold on this machine", u.unmet)
	case result == "done" && u.active == "inactive" && u.serviceType == "oneshot":
		b.WriteString(" went well, but it is a program that ends (Type=oneshot without RemainAfterExit), and so it never runs; declare \"running\": false, or its timer")
	case result == "done" && u.active == "inactive":
		b.WriteString(" went well, and then its program ended by itself")
	case result == "canceled":
		b.WriteString(" was called off by somebody else")
	default:
		b.WriteString(" failed")
		if reason := reasons[u.result]; reason != "" {
			b.WriteString(": " + reason)
		}
		if u.exitCode == exitedCode && u.exitStatus != 0 {
			fmt.Fprintf(b, " (exit status %d)", u.exitStatus)
		} else if u.exitCode > exitedCode {
			fmt.Fprintf(b, " (signal %d)", u.exitStatus)
		}
	}
	fmt.Fprintf(b, "; it is %s (%s) now. See journalctl -u %s", u.active, u.sub, name)
	return errors.New(b.String())
}
