package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A Program is a real process on a segment: one of muster's own, or another
// that serves there. It can be killed and started again.
type Program struct {
	*Transcript // of what it logs; times count from the segment's first program

	ns      *namespace
	name    string
	log     string
	start   time.Time
	command func() *exec.Cmd

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

func (s *namespace) newProgram(name, logDir string, start time.Time, command func() *exec.Cmd) *Program {
	return &Program{Transcript: newTranscript(name), ns: s, name: name, log: filepath.Join(logDir, name+".log"), start: start, command: command}
}

// Start starts it; it must not run already.
func (p *Program) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("%s runs already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c := p.command()
	c.Stdout, c.Stderr = p.Transcript, p.Transcript
	p.begin(p.start, log)
	if err := p.ns.Start(c); err != nil {
		log.Close()
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = c, exited
	go func() {
		err := c.Wait()
		p.mu.Lock()
		p.cmd = nil
		p.mu.Unlock()
		why := "has ended"
		if err != nil {
			why += " (" + err.Error() + ")"
		}
		p.end(why)
		log.Close()
		close(exited)
	}()
	return nil
}

// Kill ends it as a crash would: at once, in the middle of whatever it does.
func (p *Program) Kill() error { return p.stop(syscall.SIGKILL) }

// Stop asks it to end, and waits until it has.
func (p *Program) Stop() error { return p.stop(syscall.SIGTERM) }

func (p *Program) stop(sig syscall.Signal) error {
	p.mu.Lock()
	c, exited := p.cmd, p.exited
	p.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%s does not run%s", p.name, p.Tail())
	}
	if err := c.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-exited
	return nil
}
