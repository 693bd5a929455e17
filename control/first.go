package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster.internal/durable"
)

// FirstOperator is the name of the admin that the first start makes.
const FirstOperator = "admin"

// firstLoginFile is in a control plane's directory until the first operator's
// password is another.
const firstLoginFile = "first-login"

// FirstLoginFile is where a control plane that keeps its things in dir leaves
// its first login. Whoever can read it owns the host, or is musterd itself.
func FirstLoginFile(dir string) string { return filepath.Join(dir, firstLoginFile) }

// A FirstLogin is all that it takes to log in as the first operator.
type FirstLogin struct {
	URL      string `json:"url"`
	Operator string `json:"operator"`
	Password string `json:"password"`
	CA       string `json:"ca"` // PEM
}

// ReadFirstLogin reads it. Its error is fs.ErrNotExist when there is none, or
// none any more.
func ReadFirstLogin(dir string) (l FirstLogin, err error) {
	file := FirstLoginFile(dir)
	b, err := os.ReadFile(file)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("%s is damaged: %w; have another password made with musterd reset-password %s", file, err, FirstOperator)
	}
	return l, nil
}

// firstOperator makes the first operator with a password that is nowhere but in
// the file of the first login: a service's output is kept in a log. The file
// comes first, so that a start that is cut short leaves none without.
func (c *Control) firstOperator(ctx context.Context) error {
	ops, err := c.store.Operators(ctx)
	if err != nil || len(ops) > 0 {
		return err
	}
	password, err := newPassword()
	if err != nil {
		return err
	}
	if err := c.writeFirstLogin(password); err != nil {
		return err
	}
	made, err := c.store.FirstOperator(ctx, c.now(), FirstOperator, password)
	if err == nil && !made { // another control plane of the same store was faster
		return endFirstLogin(c.cfg.Dir, FirstOperator)
	}
	if err == nil {
		c.log.Info("made the first operator", "operator", FirstOperator, "password_in", FirstLoginFile(c.cfg.Dir))
	}
	return err
}

func (c *Control) writeFirstLogin(password string) error {
	b, err := json.MarshalIndent(FirstLogin{URL: c.url, Operator: FirstOperator, Password: password, CA: string(c.CA())}, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(FirstLoginFile(c.cfg.Dir), append(b, '\n'), 0o600)
}

// followFirstLogin keeps the address in the file the one at which it serves.
func (c *Control) followFirstLogin() error {
	l, err := ReadFirstLogin(c.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || l.URL == c.url {
		return err
	}
	return c.writeFirstLogin(l.Password)
}

// endFirstLogin removes the file once its password is no longer that operator's.
// It is worth nothing then, so that it stays is no reason to fail.
func (c *Control) endFirstLogin(operator string) {
	if err := endFirstLogin(c.cfg.Dir, operator); err != nil {
		c.log.Warn("the first login is no longer good, and its file stays", "error", err)
	}
}

func endFirstLogin(dir, operator string) error {
	if operator != FirstOperator {
		return nil
	}
	err := os.Remove(FirstLoginFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// DefaultDir is where a control plane keeps its things unless told otherwise:
// root's where a service's are, anybody else's at home.
func DefaultDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/musterd"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "musterd"
	}
	return filepath.Join(home, ".local", "share", "musterd")
}
