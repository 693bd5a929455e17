package linux

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"muster.internal/resource"
)

const (
	// declaredLabel is on each container that the host made. It says what was
	// declared where the runtime mixes that with what came with the image.
	declaredLabel = "internal.muster.declared"
	// A container that replaces another is made as NAME + freshSuffix; the other
	// waits as NAME + formerSuffix until it runs.
	freshSuffix  = ".muster-new"
	formerSuffix = ".muster-old"
	// keptSuffix is for one that somebody else made: it is stopped, never removed.
	keptSuffix = ".before-muster"
	// containerSettle is how long a container is watched after its start.
	containerSettle = time.Second
)

// containers is the hand for containers.
type containers struct {
	sockets []string
	found   *engine
}

func newContainers() *containers { return &containers{sockets: engineSockets} }

func (c *containers) engine() (*engine, error) {
	if c.found == nil {
		e, err := findEngine(c.sockets)
		if err != nil {
			return nil, err
		}
		c.found = e
	}
	return c.found, nil
}

// read tells how a container is, in the words of a declaration.
func (c *containers) read(name string) (resource.State, error) {
	e, err := c.engine()
	if errors.Is(err, errNoRuntime) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i, err := e.inspect(name)
	if i == nil || err != nil {
		return nil, err
	}
	var config imageConfig
	if !i.ours() {
		if config, _, err = e.image(i.Image); err != nil {
			return nil, fmt.Errorf("the image of container %s cannot be looked at: %w", name, err)
		}
	}
	return i.asDeclared(config).State(i.running()), nil
}

// put makes a container as declared. One that differs is replaced: the new one
// is made first, and the old one started again when the new one does not run.
func (c *containers) put(r *resource.Container, was resource.State) error {
	e, err := c.engine()
	if err != nil {
		return err
	}
	if err := e.recover(r.Name); err != nil {
		return err
	}
	is, err := e.inspect(r.Name)
	if err != nil {
		return err
	}
	if is != nil && was == nil && !is.ours() {
		return fmt.Errorf("a container %s is there by now, and the host did not make it", r.Name)
	}
	if is != nil {
		if now, err := c.read(r.Name); err != nil {
			return err
		} else if d := resource.Differences(now, r.State(true)); len(d) == 0 || len(d) == 1 && d[0].Field == resource.FieldRunning {
			return e.start(is)
		}
	}
	if _, there, err := e.image(r.Image); err != nil {
		return fmt.Errorf("image %s cannot be looked at: %w", r.Image, err)
	} else if !there {
		if err := e.pull(r.Image); err != nil {
			return err
		}
	}
	if is == nil {
		if err := e.create(r, r.Name, nil); err != nil {
			return err
		}
		made, err := e.inspect(r.Name)
		if err == nil && made != nil {
			err = e.start(made)
		}
		return err
	}
	return e.replace(r, is)
}

// recover ends a replacement that was cut short: with the old container when it
// had not gone far, and with the new one when that has the name.
func (e *engine) recover(name string) error {
	if err := e.removeOurs(name + freshSuffix); err != nil {
		return err
	}
	former, err := e.inspect(name + formerSuffix)
	if former == nil || err != nil {
		return err
	}
	is, err := e.inspect(name)
	switch {
	case err != nil:
		return err
	case is == nil:
	case is.running():
		return e.putAway(former, name)
	default: // the new one never ran, as far as is known
		if err := e.removeOurs(name); err != nil {
			return err
		}
	}
	if err := e.rename(former, name); err != nil {
		return err
	}
	_ = e.start(former) // it is about to be replaced again; until then it may serve
	return nil
}

// replace puts a new container in the place of another.
func (e *engine) replace(r *resource.Container, is *instance) error {
	if err := e.create(r, r.Name+freshSuffix, is.nameless(r)); err != nil {
		return err
	}
	made, err := e.inspect(r.Name + freshSuffix)
	if err == nil && made == nil {
		err = errors.New("the new one is gone before it was started")
	}
	if err != nil {
		return err
	}
	if err = e.takePlace(r.Name, is, made); err == nil {
		return e.putAway(is, r.Name)
	}
	back := e.remove(made)
	if back == nil {
		back = e.rename(is, r.Name)
	}
	if back == nil && is.State.Running {
		back = e.start(is)
	}
	if back != nil {
		return fmt.Errorf("%w; nor is the container before it, %s, as it was: %w", err, is.name(), back)
	}
	return fmt.Errorf("%w; the container before it is as it was", err)
}

func (e *engine) takePlace(name string, is, made *instance) error {
	if err := e.stop(is); err != nil {
		return err
	}
	if err := e.rename(is, name+formerSuffix); err != nil {
		return err
	}
	if err := e.rename(made, name); err != nil {
		return err
	}
	return e.start(made)
}

// putAway is the end of a container that has been replaced. One that somebody
// else made is kept: what is in it is not the host's to lose.
func (e *engine) putAway(former *instance, name string) error {
	if former.ours() {
		return e.remove(former)
	}
	never := struct{ RestartPolicy restartPolicy }{restartPolicy{Name: "no"}}
	err := e.call("POST", "/containers/"+former.ID+"/update", nil, never, nil)
	if err != nil && !refusedWith(err, http.StatusNotFound) && !refusedWith(err, http.StatusMethodNotAllowed) { // Podman has none before 5
		return fmt.Errorf("the container that was replaced would start again with the machine: %w", err)
	}
	return e.rename(former, name+keptSuffix)
}

// A creation is the order for a container.
type creation struct {
	Image        string
	Cmd          []string `json:",omitempty"`
	Env          []string
	Labels       map[string]string
	ExposedPorts map[string]struct{}
	HostConfig   struct {
		Mounts        []volume
		PortBindings  map[string][]binding
		NetworkMode   string `json:",omitempty"`
		RestartPolicy restartPolicy
	}
}

type volume struct {
	Type, Source, Target string
	ReadOnly             bool
}

// order spells a declaration for the runtime.
func order(r *resource.Container) creation {
	label, _ := json.Marshal(declared{len(r.Command) > 0, slices.Sorted(maps.Keys(r.Environment))})
	state := r.State(true)
	o := creation{Image: r.Image, Cmd: r.Command, Labels: map[string]string{declaredLabel: string(label)}, ExposedPorts: map[string]struct{}{}}
	for _, name := range slices.Sorted(maps.Keys(r.Environment)) {
		o.Env = append(o.Env, name+"="+r.Environment[name])
	}
	h := &o.HostConfig
	h.NetworkMode, h.RestartPolicy.Name = state[resource.FieldNetwork], state[resource.FieldRestart]
	for _, m := range r.Mounts {
		h.Mounts = append(h.Mounts, volume{"bind", m.Source, m.Target, m.ReadOnly})
	}
	h.PortBindings = map[string][]binding{}
	for _, p := range r.Ports {
		inside := fmt.Sprintf("%d/%s", p.Container, cmp.Or(p.Protocol, "tcp"))
		o.ExposedPorts[inside] = struct{}{}
		h.PortBindings[inside] = append(h.PortBindings[inside], binding{HostPort: strconv.Itoa(p.Host)})
	}
	return o
}

// create makes a container, with more mounts than are declared, and does not
// start it.
func (e *engine) create(r *resource.Container, name string, more []volume) error {
	o := order(r)
	o.HostConfig.Mounts = append(o.HostConfig.Mounts, more...)
	if err := e.call("POST", "/containers/create", url.Values{"name": {name}}, o, nil); err != nil {
		return fmt.Errorf("container %s cannot be made: %w", r.Name, err)
	}
	return nil
}

// start starts a container, and sees that it runs a moment later.
func (e *engine) start(i *instance) error {
	what := "start"
	if i.State.Paused {
		what = "unpause"
	}
	return e.run(i, what, nil)
}

// run starts a container in one of the ways there are, and watches it.
func (e *engine) run(i *instance, what string, query url.Values) error {
	name := i.name()
	if err := e.call("POST", "/containers/"+i.ID+"/"+what, query, nil, nil); err != nil {
		return fmt.Errorf("container %s does not %s: %w", name, what, err)
	}
	restarts := -1
	for until := time.Now().Add(containerSettle); ; time.Sleep(containerSettle / 10) {
		var now instance
		if err := e.call("GET", "/containers/"+i.ID+"/json", nil, nil, &now); err != nil {
			return fmt.Errorf("container %s cannot be looked at after its start: %w", name, err)
		}
		if restarts < 0 {
			restarts = now.RestartCount
		}
		if !now.running() || now.RestartCount > restarts {
			return fmt.Errorf("container %s was started, and its program ended at once with exit status %d; the runtime's logs command tells what it said", name, e.exitStatus(i, now))
		}
		if time.Now().After(until) {
			return nil
		}
	}
}

// exitStatus is how a container ended. Podman says that one has ended before it
// says how, and one that is started again has no status while it runs: it is
// looked at for a while.
func (e *engine) exitStatus(i *instance, now instance) int {
	for until := time.Now().Add(2 * containerSettle); (now.running() || now.State.ExitCode == 0) && time.Now().Before(until); time.Sleep(containerSettle / 20) {
		if err := e.call("GET", "/containers/"+i.ID+"/json", nil, nil, &now); err != nil {
			break
		}
	}
	return now.State.ExitCode
}

func (e *engine) stop(i *instance) error {
	err := e.call("POST", "/containers/"+i.ID+"/stop", url.Values{"t": {stopGrace}}, nil, nil)
	if err != nil && !refusedWith(err, http.StatusNotModified) {
		return fmt.Errorf("container %s does not stop: %w", i.name(), err)
	}
	return nil
}

func (e *engine) rename(i *instance, name string) error {
	if i.name() == name {
		return nil
	}
	if err := e.call("POST", "/containers/"+i.ID+"/rename", url.Values{"name": {name}}, nil, nil); err != nil {
		return fmt.Errorf("container %s cannot be renamed to %s: %w", i.name(), name, err)
	}
	i.Name = name
	return nil
}

// remove removes a container. Volumes stay: what is in them is not the host's to
// lose.
func (e *engine) remove(i *instance) error {
	err := e.call("DELETE", "/containers/"+i.ID, url.Values{"force": {"true"}}, nil, nil)
	if err != nil && !refusedWith(err, http.StatusNotFound) {
		return fmt.Errorf("container %s cannot be removed: %w", i.name(), err)
	}
	return nil
}

// removeOurs removes a container that carries the host's label, if it is there.
func (e *engine) removeOurs(name string) error {
	i, err := e.inspect(name)
	switch {
	case i == nil || err != nil:
		return err
	case !i.ours():
		return fmt.Errorf("container %s does not carry the host's label, so that somebody else made it; it is left", name)
	}
	if err := e.stop(i); err != nil {
		return err
	}
	return e.remove(i)
}

// restart starts a container anew.
func (c *containers) restart(name string) error {
	e, err := c.engine()
	if err != nil {
		return err
	}
	i, err := e.inspect(name)
	if err == nil && i == nil {
		err = fmt.Errorf("there is no container %s", name)
	}
	if err != nil {
		return err
	}
	return e.run(i, "restart", url.Values{"t": {stopGrace}})
}

// remove removes a container that the host made.
func (c *containers) remove(name string) error {
	e, err := c.engine()
	if err != nil {
		return err
	}
	if err := e.recover(name); err != nil {
		return err
	}
	return e.removeOurs(name)
}

// halt stops a container, and leaves it there.
func (c *containers) halt(name string) error {
	e, err := c.engine()
	if err != nil {
		return err
	}
	i, err := e.inspect(name)
	if i == nil || err != nil {
		return err
	}
	return e.stop(i)
}
