package lab

import (
	"context"
	"fmt"
	"strings"
)

// A Stranger is somebody else on the segment: a network namespace of its own
// with one cable into the bridge. What it does on the wire is real.
type Stranger struct {
	*namespace
	Interface string
}

// NewStranger plugs a stranger in, with an address that may be anybody's.
func (s *Segment) NewStranger(ctx context.Context, address string) (*Stranger, error) {
	s.mu.Lock()
	n := s.taps
	s.taps++
	s.mu.Unlock()
	st := &Stranger{newNamespace(fmt.Sprintf("%s-%d", s.Name, n)), "eth0"}
	near, far := fmt.Sprintf("veth%d", n), st.Interface
	if err := ip(ctx, "netns", "add", st.Name); err != nil {
		return nil, err
	}
	for _, args := range []string{
		"-n " + s.Name + " link add " + near + " type veth peer name " + far + " netns " + st.Name,
		"-n " + s.Name + " link set " + near + " master " + s.Bridge + " up",
		"-n " + st.Name + " link set lo up",
		"-n " + st.Name + " addr add " + address + "/24 dev " + far,
		"-n " + st.Name + " link set " + far + " up",
	} {
		if err := ip(ctx, strings.Fields(args)...); err != nil {
			return nil, err
		}
	}
	if err := st.enter(); err != nil {
		return nil, err
	}
	s.closes(closer(st.leave))
	return st, nil
}

// closer makes an io.Closer of what cannot fail.
type closer func()

func (c closer) Close() error { c(); return nil }
