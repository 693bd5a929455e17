package bus

import (
	"encoding/json"

	"muster.internal/setup"
)

// Progress tells the booter how the script of message id fares. What cannot be
// told now is lost, as any line of a log may be: it never holds a setup up for
// longer than a write may take.
func (a *Agent) Progress(id string, p setup.Progress) error {
	a.mu.Lock()
	c := a.conn
	a.mu.Unlock()
	if c == nil {
		return ErrClosed
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return c.Publish("ur.progress."+a.UUID+"."+id, b)
}
