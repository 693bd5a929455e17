package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
	"muster.internal/image"
)

// A Site is a whole installation on a segment: musterd and muster-booter as
// real processes, an image to enroll with, and an operator's client.
type Site struct {
	*Segment
	Dir      string
	Programs string // directory of the programs
	URL      string // of the control plane, as seen from outside the segment
	CA       string // file with its CA
	Token    string // of the first operator
	Operator *client.Client
	Image    muster.Image
	Control  *Program
	Booter   *Program

	loaders string
	watch   func(who string, l Line)
}

// A SiteConfig says what a site is made of.
type SiteConfig struct {
	Dir      string // where everything is kept; it must be empty or absent
	Programs string // directory with musterd, muster-booter, muster-host and muster
	Cache    string // of downloaded packages, for the image
	// ImageDir is an image that was built before; empty: build one.
	ImageDir string
	// Arches are those of the image that is built; default: amd64.
	Arches []string
	// Loaders is a directory with the boot loaders; empty: the package ipxe's,
	// or, with arm64 among Arches, what a newer Debian has.
	Loaders string
	// Say hears one line a step; nil: nobody.
	Say io.Writer
	// Watch hears all that programs and machines say; nil: nobody.
	Watch func(who string, l Line)
}

const (
	controlPort = "8443"
	// AdminNetwork is the site's one network.
	AdminNetwork = "admin"
)

// NewSite sets an installation up: everything that a person would do before
// the first machine is switched on.
func NewSite(ctx context.Context, c SiteConfig) (_ *Site, err error) {
	if c.Say == nil {
		c.Say = io.Discard
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	s := &Site{Dir: c.Dir, Programs: c.Programs, CA: filepath.Join(c.Dir, "ca.pem"), watch: c.Watch}
	if c.ImageDir == "" {
		fmt.Fprintln(c.Say, "building the image that machines boot")
		c.ImageDir, err = image.Build(ctx, image.Options{Name: "lab", Arches: c.Arches, Out: filepath.Join(c.Dir, "image"), Cache: c.Cache,
			Host: filepath.Join(c.Programs, "muster-host"), Progress: c.Say})
		if err != nil {
			return nil, err
		}
	}
	if c.Loaders == "" && slices.Contains(c.Arches, "arm64") {
		c.Loaders = filepath.Join(c.Dir, "ipxe")
		if _, err = image.FetchLoaders(ctx, image.LoaderOptions{Dir: c.Loaders, Cache: c.Cache, Progress: c.Say}); err != nil {
			return nil, err
		}
	}
	if s.loaders = c.Loaders; s.loaders == "" {
		s.loaders = "/usr/lib/ipxe"
	}
	if s.Segment, err = NewSegment(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	fmt.Fprintln(c.Say, "starting musterd and muster-booter in the network namespace", s.Name)
	if err := s.startControl(ctx); err != nil {
		return nil, err
	}
	if s.Image, err = s.addImage(ctx, c.ImageDir); err != nil {
		return nil, err
	}
	if err := s.setPolicy(ctx); err != nil {
		return nil, err
	}
	if err := s.startBooter(ctx); err != nil {
		return nil, err
	}
	return s, s.Staged(ctx, s.Booter)
}

func (s *Site) program(name string) string { return filepath.Join(s.Programs, name) }

func (s *Site) startControl(ctx context.Context) error {
	dir := filepath.Join(s.Dir, "control")
	s.Control = s.newProgram("musterd", s.Dir, time.Now(), func() *exec.Cmd {
		return exec.Command(s.program("musterd"), "--dir", dir, "--listen", ServerIP+":"+controlPort)
	})
	s.Control.Watch(s.watch)
	if err := s.Control.Start(); err != nil {
		return err
	}
	if _, err := s.Control.WaitFor(ctx, 0, regexp.MustCompile(`msg=serving`)); err != nil {
		return err
	}
	outside, err := s.Forward(ServerIP + ":" + controlPort)
	if err != nil {
		return err
	}
	s.URL = "https://" + outside
	ca, err := exec.CommandContext(ctx, s.program("musterd"), "--dir", dir, "ca").Output()
	if err != nil {
		return fmt.Errorf("musterd ca: %w", err)
	}
	// It prints the fingerprint after the certificate.
	pem, _, ok := strings.Cut(string(ca), "-----END CERTIFICATE-----")
	if !ok {
		return errors.New("musterd ca printed no certificate")
	}
	pem += "-----END CERTIFICATE-----\n"
	if err := os.WriteFile(s.CA, []byte(pem), 0o644); err != nil {
		return err
	}
	anonymous, err := client.New(s.URL, "", client.Trust{CA: []byte(pem)})
	if err != nil {
		return err
	}
	login, err := control.ReadFirstLogin(dir)
	if err != nil {
		return err
	}
	token, err := anonymous.Login(ctx, muster.Login{Name: login.Operator, Password: login.Password})
	if err != nil {
		return err
	}
	s.Token, s.Operator = token.Token, anonymous.WithToken(token.Token)
	file, err := filepath.Abs(s.CA) // a shell that reads this goes elsewhere
	if err != nil {
		return err
	}
	env := fmt.Sprintf("export MUSTER_URL='%s' MUSTER_KEY='%s' MUSTER_CA='%s'\n", s.URL, s.Token, file)
	return os.WriteFile(filepath.Join(s.Dir, "lab.env"), []byte(env), 0o600)
}

func (s *Site) addImage(ctx context.Context, dir string) (muster.Image, error) {
	i, blobs, err := image.ReadDir(dir)
	if err != nil {
		return i, err
	}
	for _, f := range image.Files(i) {
		r, err := blobs.Open(f.Digest)
		if err != nil {
			return i, err
		}
		err = s.Operator.PutBlob(ctx, f.Digest, f.Size, r)
		r.Close()
		if err != nil {
			return i, err
		}
	}
	return s.Operator.AddImage(ctx, i)
}

func (s *Site) setPolicy(ctx context.Context) error {
	p, err := s.Operator.BootPolicy(ctx)
	if err != nil {
		return err
	}
	p.EnrollmentPI = &muster.ImageRef{Name: s.Image.Name}
	p.Networks = []muster.AdminNetwork{{Name: AdminNetwork, Prefix: segmentPrefix4, Start: "10.77.0.101", End: "10.77.0.199", Interface: s.Bridge}}
	_, err = s.Operator.SetBootPolicy(ctx, p)
	return err
}

func (s *Site) startBooter(ctx context.Context) error {
	for _, scope := range []muster.Scope{muster.ScopeBooter, muster.ScopeURenroll} {
		k, err := s.Operator.CreateKey(ctx, muster.NewKey{Scope: scope, Comment: "the lab's booter"})
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.keyFile(scope), []byte(k.Secret+"\n"), 0o600); err != nil {
			return err
		}
	}
	password := make([]byte, 12)
	if _, err := rand.Read(password); err != nil {
		return err
	}
	if err := os.WriteFile(s.busFile(), []byte(hex.EncodeToString(password)+"\n"), 0o600); err != nil {
		return err
	}
	s.Booter = s.newBooter(s.namespace, "muster-booter", s.Bridge)
	return s.Serve(ctx, s.Booter)
}

// newBooter is a booter of the site, to be started where a namespace is plugged
// in; more are flags. All share the keys and the bus's password, and each has a
// directory of its own.
func (s *Site) newBooter(ns *namespace, name, iface string, more ...string) *Program {
	dir := filepath.Join(s.Dir, name+".dir") // the booter makes it, for the user that it becomes
	b := ns.newProgram(name, s.Dir, s.Control.start, func() *exec.Cmd {
		return exec.Command(s.program("muster-booter"), append([]string{"--name", name, "--dir", dir, "--control", "https://" + ServerIP + ":" + controlPort,
			"--ca", s.CA, "--key-file", s.keyFile(muster.ScopeBooter), "--enroll-key-file", s.keyFile(muster.ScopeURenroll),
			"--interface", iface, "--bus-password-file", s.busFile(), "--ipxe", s.loaders, "--user", "nobody"}, more...)...)
	})
	b.Watch(s.watch)
	return b
}

// Serve starts a booter, and waits until it says that it serves.
func (s *Site) Serve(ctx context.Context, booter *Program) error {
	mark := booter.Mark()
	if err := booter.Start(); err != nil {
		return err
	}
	_, err := booter.WaitFor(ctx, mark, regexp.MustCompile(`msg=serving`))
	return err
}

func (s *Site) keyFile(scope muster.Scope) string { return filepath.Join(s.Dir, string(scope)+".key") }
func (s *Site) busFile() string                   { return filepath.Join(s.Dir, "bus.password") }

// Staged waits until a booter can serve the image.
func (s *Site) Staged(ctx context.Context, booter *Program) error {
	return s.Until(ctx, booter.name+" has staged the image", func() (bool, error) {
		bs, err := s.Operator.Booters(ctx)
		return slices.ContainsFunc(bs, func(b muster.BooterStatus) bool {
			return b.Booter == booter.name && slices.Contains(b.Staged, s.Image.Digest)
		}), err
	})
}

// Until asks again and again until the answer is yes. The control plane may be
// away meanwhile.
func (s *Site) Until(ctx context.Context, what string, f func() (bool, error)) error {
	for {
		yes, err := f()
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not come to pass that %s: %w (last answer: %v)", what, context.Cause(ctx), err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// NewMachine plugs a machine into the site, switched off. n, from 1, makes its
// name, UUID, MAC and serial number; it has two disks.
func (s *Site) NewMachine(ctx context.Context, n int, f Firmware) (*Machine, error) {
	m, err := s.Segment.NewMachine(ctx, s.Dir, MachineSpec{
		Name: fmt.Sprintf("%s%d", f, n), Firmware: f,
		UUID:   fmt.Sprintf("00112233-4455-6677-8899-aabbccdd%04x", n),
		MAC:    fmt.Sprintf("52:54:00:77:%02x:%02x", n>>8, n&255),
		Serial: fmt.Sprintf("LAB%05d", n),
		Disks:  []int64{1 << 30, 1 << 30},
	})
	if err == nil {
		m.Watch(s.watch)
	}
	return m, err
}

// WaitRegistration waits until a machine's registration is as wanted.
func (s *Site) WaitRegistration(ctx context.Context, m *Machine, what string, want func(muster.Registration) bool) (muster.Registration, error) {
	var r muster.Registration
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := s.Until(watched, m.Name+" "+what, func() (bool, error) {
		var err error
		r, err = s.Operator.Registration(ctx, m.UUID)
		if !m.On() {
			stop(fmt.Errorf("%s is off", m.Name))
		}
		return err == nil && want(r), err
	})
	if err != nil {
		err = fmt.Errorf("%w; its registration is %s %q%s", err, r.State, r.LastSetupError, m.Tail())
	}
	return r, err
}

// Surveyed waits until an approval can be offered.
func (s *Site) Surveyed(ctx context.Context, m *Machine) (muster.Registration, error) {
	return s.WaitRegistration(ctx, m, "waits for its setup, with its disks surveyed", func(r muster.Registration) bool {
		return r.State == muster.AwaitingSetup && r.SurveyedAt != nil && r.Away == "" // the survey may be one of an earlier boot
	})
}

// Approve does what an operator does: looks at the plan, and approves exactly it.
func (s *Site) Approve(ctx context.Context, m *Machine, r muster.SetupRequest) (muster.SetupPlan, muster.SetupGrant, error) {
	plan, err := s.Operator.PlanSetup(ctx, m.UUID, r)
	if err != nil {
		return plan, muster.SetupGrant{}, err
	}
	g, err := s.Operator.ApproveSetup(ctx, m.UUID, muster.SetupApproval{SetupRequest: r, Plan: plan.Digest, Confirm: m.Serial})
	return plan, g, err
}

// CLI runs the operator's command line as its user would, and returns what it
// printed.
func (s *Site) CLI(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, s.program("muster"), args...)
	c.Env = append(os.Environ(), "MUSTER_URL="+s.URL, "MUSTER_KEY="+s.Token, "MUSTER_CA="+s.CA)
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("muster %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaints.String()))
	}
	return string(out), err
}
