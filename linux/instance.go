package linux

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster.internal/resource"
)

// An instance is a container as its runtime describes it.
type instance struct {
	ID     string `json:"Id"`
	Name   string
	Image  string // by its hash
	Config struct {
		Image    string
		Cmd, Env []string
		Labels   map[string]string
	}
	HostConfig struct {
		NetworkMode   string
		RestartPolicy restartPolicy
		PortBindings  map[string][]binding
	}
	Mounts          []mounted
	NetworkSettings struct{ Networks map[string]any }
	State           struct {
		Running, Paused, Restarting bool
		ExitCode                    int
	}
	RestartCount int
}

// A mounted is a mount that a container has.
type mounted struct {
	Type, Name, Source, Destination string
	RW                              bool
}

// nameless volumes are those that an image asks for; they are called by 64
// digits.
func (m mounted) nameless() bool { return m.Type == "volume" && len(m.Name) == 64 }

// nameless are the volumes that a container's replacement takes over, because
// nothing else would find them again.
func (i *instance) nameless(r *resource.Container) (all []volume) {
	for _, m := range i.Mounts {
		declared := slices.ContainsFunc(r.Mounts, func(d resource.Mount) bool { return d.Target == m.Destination })
		if m.nameless() && !declared {
			all = append(all, volume{"volume", m.Name, m.Destination, !m.RW})
		}
	}
	return all
}

type restartPolicy struct {
	Name              string
	MaximumRetryCount int `json:",omitempty"`
}

type binding struct{ HostIP, HostPort string }

// declared is the value of the label.
type declared struct {
	Command     bool     `json:"command,omitempty"`
	Environment []string `json:"environment,omitempty"` // names
}

func (i *instance) name() string { return strings.TrimPrefix(i.Name, "/") }

// ours tells whether the host made it.
func (i *instance) ours() bool { _, is := i.Config.Labels[declaredLabel]; return is }

func (i *instance) running() bool { return i.State.Running && !i.State.Paused && !i.State.Restarting }

// asDeclared is the declaration that would make this container. What an image
// gives to it is not declared.
func (i *instance) asDeclared(image imageConfig) *resource.Container {
	c := &resource.Container{Image: i.Config.Image, Environment: map[string]string{}, Network: i.network(), Restart: i.restart()}
	var said declared
	ours := i.ours() && json.Unmarshal([]byte(i.Config.Labels[declaredLabel]), &said) == nil
	if ours && said.Command || !ours && !slices.Equal(i.Config.Cmd, image.Cmd) {
		c.Command = i.Config.Cmd
	}
	for _, variable := range i.Config.Env {
		name, value, _ := strings.Cut(variable, "=")
		if ours && slices.Contains(said.Environment, name) || !ours && !slices.Contains(image.Env, variable) && !slices.Contains(given, name) {
			c.Environment[name] = value
		}
	}
	for _, m := range i.Mounts {
		switch {
		case m.Type == "bind":
			c.Mounts = append(c.Mounts, resource.Mount{Source: m.Source, Target: m.Destination, ReadOnly: !m.RW})
		case m.Type == "volume" && !m.nameless():
			c.Mounts = append(c.Mounts, resource.Mount{Source: m.Name, Target: m.Destination, ReadOnly: !m.RW})
		}
	}
	for port, bindings := range i.HostConfig.PortBindings {
		number, protocol, _ := strings.Cut(port, "/")
		inside, _ := strconv.Atoi(number)
		for _, b := range bindings {
			outside, _ := strconv.Atoi(b.HostPort)
			p := resource.Port{Host: outside, Container: inside, Protocol: protocol}
			if b.HostIP != "" && b.HostIP != "0.0.0.0" && b.HostIP != "::" {
				p.Protocol += " at " + b.HostIP // which no declaration says
			}
			c.Ports = append(c.Ports, p)
		}
	}
	return c
}

// given are variables that a runtime gives to a container by itself.
var given = []string{"PATH", "TERM", "HOME", "HOSTNAME", "container"}

func (i *instance) restart() string {
	r := i.HostConfig.RestartPolicy
	switch {
	case r.Name == "":
		return "no"
	case r.MaximumRetryCount > 0:
		return fmt.Sprintf("%s:%d", r.Name, r.MaximumRetryCount)
	}
	return r.Name
}

// network is the one that was asked for. Podman says "bridge" for each of its
// own making, and calls the usual one "podman".
func (i *instance) network() string {
	mode := i.HostConfig.NetworkMode
	if mode != "" && mode != "default" && mode != "bridge" {
		if mode == "podman" {
			return ""
		}
		return mode
	}
	names := slices.Sorted(maps.Keys(i.NetworkSettings.Networks))
	names = slices.DeleteFunc(names, func(n string) bool { return n == "bridge" || n == "podman" })
	return strings.Join(names, ",")
}
