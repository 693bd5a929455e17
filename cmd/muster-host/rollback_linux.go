package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/durable"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
)

// The files of a supervised host, beside its records. The program that rolls back
// must not wait for one that hangs, so none of them is behind the lock.
const (
	provenFile     = "proven"           // the last version that was linked, as a program
	candidateFile  = "candidate.json"   // host.Candidate, while there is one
	rolledBackFile = "rolled-back.json" // host.RolledBack, the last
)

// installed is where packages have the program.
const installed = "/usr/bin/muster-host"

// linkWithin is how long the proven version tries to reach the control plane
// before a candidate is blamed for not having done so.
const linkWithin = 20 * time.Second

// A rollback is the proven version at work beside the unit of the host: before
// each start, after each end, and now and then while another version is on trial.
type rollback struct {
	e              *env
	dir, program   string
	within         time.Duration
	failed         bool // the host's process just ended as it should not have
	proven, beside string
	last           host.RolledBack
}

// rollBack is run by the unit of the host, never by hand.
func rollBack(ctx context.Context, e *env) error {
	r := rollback{e: e, failed: badResult(os.Getenv("SERVICE_RESULT"))}
	if err := e.flags("rollback", func(f *flag.FlagSet) {
		f.Usage = func() {
			fmt.Fprint(f.Output(), `usage: muster-host rollback [flags]

Run by the unit of the host, with the last version that was linked: it looks
whether the version that is installed may still be tried. One that fails three
times, or is not linked in time although this one can link, is replaced by this one,
which then says so. What nobody can reach is nobody's fault: while this version
cannot link either, the other one stays.

flags:
`)
			printFlags(f)
		}
		f.StringVar(&r.dir, "state", stateDir, "the host's state directory")
		f.StringVar(&r.program, "program", installed, "the installed program")
		f.DurationVar(&r.within, "within", host.CandidateWithin, "how long a version may be without having linked")
	}); err != nil {
		return err
	}
	return r.judge(ctx)
}

// badResult reads what systemd says of how a unit's process ended; empty: it did
// not end.
func badResult(result string) bool { return result != "" && result != "success" }

func (r *rollback) judge(ctx context.Context) (err error) {
	if r.beside, err = digestFile(r.program); err != nil {
		return err // it is removed, or about to be replaced
	}
	if r.proven, err = digestFile(filepath.Join(r.dir, provenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var was host.Candidate
	for file, into := range map[string]any{candidateFile: &was, rolledBackFile: &r.last} {
		if err := loadFile(filepath.Join(r.dir, file), into); err != nil {
			r.e.say("%v", err) // as if it were not there
		}
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	c, verdict, why := was.Judge(r.beside, r.proven, r.last, r.failed, r.within, momentOf(boot))
	if verdict == host.Overdue {
		if err := r.links(ctx); err != nil {
			r.e.say("the installed version was not linked within %v, and neither can this one: %v", r.within, err)
			verdict = host.OnTrial
		} else if now, err := digestFile(filepath.Join(r.dir, provenFile)); err != nil || now != r.proven {
			return err // the other one was linked at last, while this one tried to
		}
	}
	switch {
	case verdict == host.Refused || verdict == host.Overdue:
		return r.replace(why)
	case verdict == host.Proven:
		return credential.Drop(filepath.Join(r.dir, candidateFile))
	case c != was:
		return storeFile(filepath.Join(r.dir, candidateFile), c)
	}
	return nil
}

// links tells whether this version can speak with the control plane now.
func (r *rollback) links(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, linkWithin)
	defer cancel()
	c, err := credential.Load(credentialFile(r.dir))
	if err != nil {
		return err
	}
	id, err := credential.LoadIdentity(identityFile(r.dir))
	if err != nil {
		return err
	}
	if id.Certificate == nil {
		return errNoCertificate
	}
	api, err := client.New(c.URL, "", client.Trust{CA: []byte(c.CA), Pair: id.TLS()})
	if err != nil {
		return err
	}
	defer api.Close()
	_, err = api.LinkOwned(ctx)
	return err
}

// replace puts the proven version in the place of the installed one. It is said
// first: of what is done again after a power cut, nothing is lost.
func (r *rollback) replace(why string) error {
	if r.beside != r.last.Digest {
		b := host.RolledBack{Digest: r.beside, Package: packageVersion(), Reason: why, At: time.Now()}
		if err := storeFile(filepath.Join(r.dir, rolledBackFile), b); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(filepath.Join(r.dir, provenFile))
	if err != nil {
		return err
	}
	if err := durable.Replace(r.program, program, 0o755); err != nil {
		return err
	}
	r.e.say("the installed version of muster-host was rolled back: %s", why)
	if err := credential.Drop(filepath.Join(r.dir, candidateFile)); err != nil {
		return err
	}
	return end(r.program)
}

// packageVersion is what the package manager says is installed; empty: it says
// nothing.
func packageVersion() string {
	hands, err := linux.NewResources("")
	if err != nil {
		return ""
	}
	is, err := hands.Read(resource.NewRef(resource.KindPackage, "muster-host"))
	if err != nil {
		return ""
	}
	return is[resource.FieldVersion]
}

// end kills what still runs the program that was replaced. Nobody asks the
// service manager to: it starts what ended again.
func end(program string) error {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return err
	}
	for _, l := range links {
		if runs, err := os.Readlink(l); err != nil || runs != program+" (deleted)" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(l)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// ownProgram is the file that this program was started from.
func ownProgram() (fs.FileInfo, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
}

// keepProven keeps the program of this process as the last one that was linked.
func keepProven(dir string) error {
	file := filepath.Join(dir, provenFile)
	now, err := digestFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if kept, err := digestFile(file); err != nil || kept != now {
		program, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return err
		}
		if err := durable.Replace(file, program, 0o700); err != nil {
			return err
		}
	}
	return credential.Drop(filepath.Join(dir, candidateFile))
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// loadFile reads a small file of JSON; one that is not there leaves into as it is.
func loadFile(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func storeFile(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.Replace(path, append(text, '\n'), 0o600)
}
