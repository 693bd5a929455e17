package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// qmp talks to a virtual machine's monitor (QEMU's machine protocol).
type qmp struct {
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
}

// dialQMP connects and leaves the negotiation behind. QEMU makes the socket
// before it runs anything, but not before exec returns.
func dialQMP(path string, within time.Duration) (*qmp, error) {
	deadline := time.Now().Add(within)
	for {
		c, err := net.Dial("unix", path)
		if err == nil {
			q := &qmp{conn: c, in: json.NewDecoder(c)}
			var hello json.RawMessage
			c.SetReadDeadline(deadline)
			if err := q.in.Decode(&hello); err != nil {
				c.Close()
				return nil, fmt.Errorf("QEMU's monitor: %w", err)
			}
			return q, q.do("qmp_capabilities", nil)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("QEMU's monitor: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (q *qmp) do(command string, args map[string]any) error {
	_, err := q.ask(command, args)
	return err
}

// ask executes one command and waits for its answer; events are passed over.
func (q *qmp) ask(command string, args map[string]any) (json.RawMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conn.SetDeadline(time.Now().Add(20 * time.Second))
	req := map[string]any{"execute": command}
	if args != nil {
		req["arguments"] = args
	}
	if err := json.NewEncoder(q.conn).Encode(req); err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %s: %w", command, err)
	}
	for {
		var r struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := q.in.Decode(&r); err != nil {
			return nil, fmt.Errorf("QEMU's monitor: %s: %w", command, err)
		}
		switch {
		case r.Error != nil:
			return nil, fmt.Errorf("QEMU's monitor: %s: %s", command, r.Error.Desc)
		case r.Return != nil:
			return r.Return, nil
		}
	}
}
