package lab

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/image"
)

// built is what every site needs and is the same for all: the programs, static,
// from this source tree, and the image with this muster-host in it. Only
// downloaded packages are shared with other runs.
var built = sync.OnceValues(func() (b struct{ programs, image string }, err error) {
	if builtDir, err = os.MkdirTemp("", "muster-lab"); err != nil {
		return
	}
	if err = os.Chmod(builtDir, 0o711); err != nil { // a booter without root finds its loaders
		return
	}
	b.programs, b.image = filepath.Join(builtDir, "bin"), filepath.Join(builtDir, "image")
	if p := os.Getenv("MUSTER_LAB_PROGRAMS"); p != "" { // built already
		b.programs = p
	} else if err = buildPrograms(b.programs); err != nil {
		return
	}
	_, err = image.Build(context.Background(), image.Options{Name: "lab", Arches: arches(Firmwares), Out: b.image, Cache: labCache(),
		Host: filepath.Join(b.programs, "muster-host"), Progress: os.Stderr})
	return
})

// newerLoaders are those for arm64, too, fetched once for all tests.
var newerLoaders = sync.OnceValues(func() (string, error) {
	if _, err := built(); err != nil {
		return "", err
	}
	dir := filepath.Join(builtDir, "ipxe")
	_, err := image.FetchLoaders(context.Background(), image.LoaderOptions{Dir: dir, Cache: labCache(), Progress: os.Stderr})
	return dir, err
})

// builtDir is removed when all tests are done.
var builtDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

func labCache() string { return os.Getenv("MUSTER_LAB_CACHE") } // empty: the user's

func buildPrograms(to string) error {
	c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", to+"/", "./cmd/...")
	c.Dir = ".."
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	c.Stderr = os.Stderr
	return c.Run()
}

// newLab makes a site for one test, which may take so long and no longer.
func newLab(t *testing.T, limit time.Duration) (context.Context, *Site) {
	t.Helper()
	return newLabFor(t, limit, BIOS)
}

// newLabFor is the same for machines with other firmware.
func newLabFor(t *testing.T, limit time.Duration, f Firmware) (context.Context, *Site) {
	t.Helper()
	return newLabWith(t, limit, f, func() (string, error) {
		b, err := built()
		return b.image, err
	})
}

// newLabWith is the same with another image.
func newLabWith(t *testing.T, limit time.Duration, f Firmware, image func() (string, error)) (context.Context, *Site) {
	t.Helper()
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("boots virtual machines for minutes: set MUSTER_LAB=1 to run it")
	}
	if missing := Missing(f); len(missing) > 0 {
		t.Skip("needs ", strings.Join(missing, ", "))
	}
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	imageDir, err := image()
	if err != nil {
		t.Fatal(err)
	}
	loaders := ""
	if f.board().arch == "arm64" {
		loaders = must[string](t)(newerLoaders())
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	dir := os.Getenv("MUSTER_LAB_DIR") // to look at afterwards
	if dir == "" {
		dir = t.TempDir()
		// The booter gives up root, and must still get to its directory.
		if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
			t.Fatal(err)
		}
	} else {
		dir = filepath.Join(dir, t.Name())
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewSite(ctx, SiteConfig{Dir: dir, Programs: b.programs, ImageDir: imageDir, Loaders: loaders, Say: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("musterd%s", s.Control.Tail())
			t.Logf("muster-booter%s", s.Booter.Tail())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx, s
}

func (s *Site) machine(t *testing.T, ctx context.Context, n int, f Firmware) *Machine {
	t.Helper()
	m, err := s.NewMachine(ctx, n, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Cut)
	return m
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func isApproved(r muster.Registration) bool { return r.State == muster.Approved }

// refreshedAfter: the machine came back by itself, with its own key.
func refreshedAfter(at time.Time) func(muster.Registration) bool {
	return func(r muster.Registration) bool {
		return r.State == muster.Approved && r.RefreshedAt != nil && r.RefreshedAt.After(at)
	}
}

// TestLabFirstLife is the whole way, on each firmware: empty disks, power on,
// and at the end an approved node that speaks with its own key. It tells at
// which second each came how far.
func TestLabFirstLife(t *testing.T) {
	var heads []string
	all := make([]*Stages, len(Firmwares))
	t.Run("firmware", func(t *testing.T) {
		for n, f := range Firmwares {
			heads, all[n] = append(heads, string(f)), new(Stages)
			t.Run(string(f), func(t *testing.T) {
				t.Parallel()
				ctx, s := newLabFor(t, 8*time.Minute, f)
				m := s.machine(t, ctx, n+1, f)
				firstLife(t, ctx, s, m, all[n])
				checkNode(t, ctx, s, m)
				m.Cut()
				checkDisks(t, ctx, s, m)
				checkNothingLeaks(t, s)
			})
		}
	})
	t.Logf("\n%s", StageTable(heads, all))
}

var hostRestarts = regexp.MustCompile(`muster-host: restarting`)

func firstLife(t *testing.T, ctx context.Context, s *Site, m *Machine, st *Stages) {
	t.Helper()
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	r := must[muster.Registration](t)(s.Surveyed(ctx, m))
	st.AddConsole("", m.Lines(0))
	st.Add("announced, disks surveyed", m.Since())
	if r.Serial != m.Serial {
		t.Errorf("the control plane knows serial %q, the machine has %q", r.Serial, m.Serial)
	}
	mark, before := m.Mark(), time.Now()
	if m.Firmware != BIOS {
		approveByHand(t, ctx, s, m)
	} else {
		approveByAPI(t, ctx, s, m)
	}
	st.Add("setup approved by the operator", m.Since())
	must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is approved", isApproved))
	st.Add("setup complete: approved", m.Since())
	must[Line](t)(m.WaitFor(ctx, mark, hostRestarts))
	st.AddConsole("", m.Lines(mark))
	mark = m.Mark()
	r = must[muster.Registration](t)(s.WaitRegistration(ctx, m, "has come back with its own key", refreshedAfter(before)))
	st.AddConsole("second boot: ", m.Lines(mark))
	st.Add("approved and authenticated after the second boot", m.Since())
}

func approveByAPI(t *testing.T, ctx context.Context, s *Site, m *Machine) {
	t.Helper()
	plan, grant, err := s.Approve(ctx, m, muster.SetupRequest{Layout: "mirror", Pool: m.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	var serials []string
	for _, d := range plan.Members() {
		serials = append(serials, d.Serial)
	}
	if want := []string{m.DiskSerial(0), m.DiskSerial(1)}; !slices.Equal(serials, want) {
		t.Errorf("the operator saw disks %v, the machine has %v", serials, want)
	}
	if grant.Registration.State != muster.SettingUp {
		t.Errorf("after the approval it is %s", grant.Registration.State)
	}
}

// approveByHand is the same with the command line, which shows the disks and
// wants the machine's serial number.
func approveByHand(t *testing.T, ctx context.Context, s *Site, m *Machine) {
	t.Helper()
	shown := must[string](t)(s.CLI(ctx, "registration", "approve-setup", m.Serial, "--dry-run", "--layout", "mirror", "--pool", string(m.Pool())))
	for n := range m.Disks {
		if !strings.Contains(shown, m.DiskSerial(n)) {
			t.Errorf("the dry run does not show disk %s:\n%s", m.DiskSerial(n), shown)
		}
	}
	if _, err := s.CLI(ctx, "registration", "approve-setup", m.Serial, "--layout", "mirror", "--pool", string(m.Pool()), "--yes", "--serial", "WRONG"); err == nil {
		t.Error("a wrong serial number was enough")
	}
	must[string](t)(s.CLI(ctx, "registration", "approve-setup", m.Serial, "--layout", "mirror", "--pool", string(m.Pool()), "--yes", "--serial", m.Serial))
	if listed := must[string](t)(s.CLI(ctx, "registration", "ls")); !strings.Contains(listed, m.Serial) {
		t.Errorf("registration ls:\n%s", listed)
	}
}

// checkNode asks the control plane what there is now.
func checkNode(t *testing.T, ctx context.Context, s *Site, m *Machine) {
	t.Helper()
	r := must[muster.Registration](t)(s.Operator.Registration(ctx, m.UUID))
	b := must[muster.BootRecord](t)(s.Operator.BootRecord(ctx, m.MAC))
	if b.State != muster.Enrolled || b.ServerUUID != m.UUID || b.AssignedPI == nil || b.AssignedPI.Digest != s.Image.Digest {
		t.Errorf("boot record: %+v", b)
	}
	for n, d := range r.Disks { // as the machine itself reports them now
		if !slices.ContainsFunc(d.Contents, func(c muster.Content) bool { return c.Name == muster.PoolName }) {
			t.Errorf("disk %s holds, it reports, %+v", m.DiskSerial(n), d.Contents)
		}
	}
	if len(r.Disks) != len(m.Disks) {
		t.Errorf("it reports %d disks", len(r.Disks))
	}
	var mine []muster.Node
	for _, n := range must[[]muster.Node](t)(s.Operator.Nodes(ctx)) {
		if n.ServerUUID == m.UUID {
			mine = append(mine, n)
		}
	}
	if len(mine) != 1 || mine[0].ID != r.NodeID || r.NodeID == "" {
		t.Errorf("nodes of %s: %+v; its registration names %q", m.UUID, mine, r.NodeID)
	}
	if v := must[muster.AuditVerdict](t)(s.Operator.VerifyAudit(ctx)); !v.OK {
		t.Errorf("audit: %+v", v)
	}
}

// checkDisks looks at the disks themselves, with the machine off.
func checkDisks(t *testing.T, ctx context.Context, s *Site, m *Machine) {
	t.Helper()
	r := must[muster.Registration](t)(s.Operator.Registration(ctx, m.UUID))
	stamp, raw := onDisks(t, m)
	if strings.TrimSpace(stamp) != m.UUID {
		t.Errorf("the pool is stamped %q", stamp)
	}
	var c struct {
		ServerUUID string `json:"server_uuid"`
		APIKey     string `json:"api_key"`
	}
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		t.Fatalf("the credential on the pool: %v", err)
	}
	if c.ServerUUID != m.UUID || r.BoundKeyID == "" || !strings.HasPrefix(c.APIKey, "mus_"+r.BoundKeyID+"_") {
		t.Errorf("the credential on the pool is for %s and not with key %s", c.ServerUUID, r.BoundKeyID)
	}
	// Planted by this very run: the machine's secret and the operator's token
	// must be nowhere but where they belong.
	secret := strings.TrimPrefix(c.APIKey, "mus_"+r.BoundKeyID+"_") // which may hold underscores itself
	if len(secret) != 43 {
		t.Fatalf("the key on the pool has a secret of %d letters", len(secret))
	}
	for _, where := range s.logs(t) {
		if b := must[[]byte](t)(os.ReadFile(where)); strings.Contains(string(b), secret) {
			t.Errorf("%s holds the machine's secret", where)
		}
	}
}

// logs are the files in which everything was written that was said.
func (s *Site) logs(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, p := range []string{"*.log", "*/console.log"} {
		all = append(all, must[[]string](t)(filepath.Glob(filepath.Join(s.Dir, p)))...)
	}
	if len(all) < 3 {
		t.Errorf("only these logs were written: %v", all)
	}
	return all
}

func checkNothingLeaks(t *testing.T, s *Site) {
	t.Helper()
	bus := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(s.busFile()))))
	for _, where := range s.logs(t) {
		b := string(must[[]byte](t)(os.ReadFile(where)))
		for name, secret := range map[string]string{"the bus password": bus, "the operator's token": s.Token} {
			if strings.Contains(b, secret) {
				t.Errorf("%s holds %s", where, name)
			}
		}
	}
}

// TestLabCommand is what `make lab` does: everything up, told live, and
// everything gone at ^C.
func TestLabCommand(t *testing.T) {
	t.Parallel()
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("boots virtual machines for minutes: set MUSTER_LAB=1 to run it")
	}
	if missing := Missing(BIOS); len(missing) > 0 {
		t.Skip("needs ", strings.Join(missing, ", "))
	}
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	said := newTranscript("muster lab")
	c := exec.CommandContext(ctx, filepath.Join(b.programs, "muster"), "lab", "--machines", "1", "--firmware", "bios", "--auto", "--dir", dir)
	c.Stdout, c.Stderr = said, said
	said.begin(time.Now(), nil)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- c.Wait()
		said.end("has ended")
	}()
	where, err := said.WaitFor(ctx, 0, regexp.MustCompile(`network namespace (\S+)`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := said.WaitFor(ctx, 0, regexp.MustCompile(`setup proved: approved`)); err != nil {
		t.Error(err)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after ^C: %v%s", err, said.Tail())
	}
	name := where.Text[strings.LastIndex(where.Text, " ")+1:]
	if _, err := os.Stat("/run/netns/" + name); !os.IsNotExist(err) {
		t.Errorf("namespace %s is left: %v", name, err)
	}
}
