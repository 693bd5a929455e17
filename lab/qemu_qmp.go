package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// qmp talks to a virtual machine's monitor (QEMU's machine protocol).
type qmp struct {
	mu    sync.Mutex
	conn  net.Conn
	in    *json.Decoder
	ready bool // the negotiation is behind us
}

// newQMP makes a monitor's two ends: one for QEMU to inherit, and one for us.
// There is no path in it that could be too long, or left behind.
func newQMP() (*qmp, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "monitor"), os.NewFile(uintptr(fds[1]), "monitor")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return &qmp{conn: c, in: json.NewDecoder(c)}, theirs, nil
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
	if !q.ready {
		var hello json.RawMessage
		if err := q.in.Decode(&hello); err != nil {
			return nil, fmt.Errorf("QEMU's monitor: %w", err)
		}
		q.ready = true
		if _, err := q.talk("qmp_capabilities", nil); err != nil {
			return nil, err
		}
	}
	return q.talk(command, args)
}

func (q *qmp) talk(command string, args map[string]any) (json.RawMessage, error) {
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
