package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"time"

	"muster.internal/host"
	"muster.internal/resource"
)

// Resources are the hands for declared resources on a real machine, for one
// apply: what they have read of packages and accounts is not read again.
type Resources struct {
	paths      *paths
	packages   *packages
	services   *services
	containers *containers
	disks      *dataDisks
}

var _ host.Resources = (*Resources)(nil)

// NewResources are the machine's. Originals is the directory for the first
// contents of what is adopted.
func NewResources(originals string) (*Resources, error) {
	p, err := newPaths(originals)
	if err != nil {
		return nil, err
	}
	disks := &dataDisks{m: New(slog.New(slog.DiscardHandler)), begun: filepath.Dir(originals)}
	return &Resources{p, newPackages(), newServices(), newContainers(), disks}, nil
}

// Now reads the clock.
func (m *Resources) Now() time.Time { return time.Now().UTC() }

// Read tells what stands there.
func (m *Resources) Read(ref resource.Ref) (resource.State, error) {
	switch ref.Kind() {
	case resource.KindFile, resource.KindDirectory:
		return m.paths.read(ref.Key())
	case resource.KindPackage:
		return m.packages.read(ref.Key())
	case resource.KindService:
		return m.services.read(ref.Key())
	case resource.KindContainer:
		return m.containers.read(ref.Key())
	case resource.KindDisk:
		return m.disks.read(ref.Key())
	}
	return nil, fmt.Errorf("%s cannot be read", ref)
}

// Create makes what is not there.
func (m *Resources) Create(r *resource.Resource, text string) error {
	return m.put(r, text, nil)
}

// Update changes what is there.
func (m *Resources) Update(r *resource.Resource, text string, is resource.State) error {
	return m.put(r, text, is)
}

func (m *Resources) put(r *resource.Resource, text string, is resource.State) error {
	switch {
	case r.File != nil:
		return m.paths.putFile(r.File, text, is)
	case r.Directory != nil:
		return m.paths.putDirectory(r.Directory, is)
	case r.Package != nil:
		return errors.Join(m.packages.install(r.Package), m.paths.reread())
	case r.Service != nil:
		m.paths.lasting.services()
		return m.services.put(r.Service)
	case r.Container != nil:
		return m.containers.put(r.Container, is)
	case r.Disk != nil:
		return m.disks.put(r.Disk, is)
	}
	return fmt.Errorf("%s cannot be made", r.Ref())
}

// Restart starts a service or container anew.
func (m *Resources) Restart(ref resource.Ref) error {
	if ref.Kind() == resource.KindContainer {
		return m.containers.restart(ref.Key())
	}
	return m.services.restart(ref.Key())
}

// Keep copies an original.
func (m *Resources) Keep(ref resource.Ref) (string, error) { return m.paths.keep(ref) }

// Remove removes what the host made.
func (m *Resources) Remove(ref resource.Ref) error {
	switch ref.Kind() {
	case resource.KindContainer:
		return m.containers.remove(ref.Key())
	case resource.KindDisk:
		return m.disks.remove(ref.Key())
	}
	return m.paths.remove(ref)
}

// Stop ends a service and keeps it from starting with the machine.
func (m *Resources) Stop(ref resource.Ref) error {
	m.paths.lasting.services()
	return m.services.stop(ref.Key())
}

// Halt stops a service or container for now.
func (m *Resources) Halt(ref resource.Ref) error {
	if ref.Kind() == resource.KindContainer {
		return m.containers.halt(ref.Key())
	}
	return m.services.halt(ref.Key())
}

// Restore gives back what was there before it was adopted.
func (m *Resources) Restore(o resource.Owned) error {
	if o.Ref.Kind() == resource.KindService {
		m.paths.lasting.services()
		return m.services.restore(o.Ref.Key(), o.Found)
	}
	return m.paths.restore(o)
}

// Done asks an action's "unless": zero means that it is done, and a program
// that is not there that it is not.
func (m *Resources) Done(a *resource.Action) (bool, error) {
	_, err := runBounded(a.Unless, a.TimeoutAfter(), nil)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() || errors.Is(err, exec.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Run runs an action.
func (m *Resources) Run(a *resource.Action) error {
	out, err := runBounded(a.Command, a.TimeoutAfter(), nil)
	return withOutput(err, out)
}
