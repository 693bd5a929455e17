package linux

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// runBounded runs a command without a terminal and with nothing to read, in a
// process group of its own, all of which ends with the time it has.
func runBounded(command []string, within time.Duration, environment []string) (string, error) {
	out := &tail{most: 4096}
	err := runTo(out, command, within, environment)
	return out.String(), err
}

// runTo is runBounded with the end of the output somewhere else.
func runTo(out *tail, command []string, within time.Duration, environment []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:" + Path, "LC_ALL=C.UTF-8", "HOME=/root"}, environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // for children that hold its output
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well and left a child behind, such as a server
		err = nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%s did not end within %v and was killed", command[0], within)
	}
	return err
}

// withOutput adds the last of what a command said to its error.
func withOutput(err error, out string) error {
	if err == nil {
		return nil
	}
	if out = strings.Join(strings.Fields(out), " "); out == "" {
		return err
	}
	if len(out) > 600 {
		out = "…" + out[len(out)-600:]
	}
	return fmt.Errorf("%w: %s", err, out)
}

// A tail keeps the last of what is written to it.
type tail struct {
	b    []byte
	most int
}

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if over := len(t.b) - t.most; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.b), "") }
