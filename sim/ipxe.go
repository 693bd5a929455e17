package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ipxe runs boot scripts as iPXE does, as far as boot scripts of ours go: a
// command that it does not know is an error, not a guess.
type ipxe struct {
	wire   Wire
	vars   map[string]string
	kernel *Boot
}

// errReboot is how a script asks to start over by way of the firmware.
var errReboot = errors.New("the boot script starts over")

// maxSteps bounds one script: a loop without a pause is a mistake.
const maxSteps = 10000

// chain loads a script and runs it.
func (p *ipxe) chain(ctx context.Context, url string) (Boot, error) {
	b, err := p.wire.HTTP(ctx, url)
	if err != nil {
		return Boot{}, err
	}
	if !bytes.HasPrefix(b, []byte("#!ipxe\n")) {
		return Boot{}, fmt.Errorf("%s is no iPXE script", url)
	}
	return p.run(ctx, strings.Split(string(b), "\n"))
}

// run goes through a script line by line. A line is commands joined by || and
// &&; a command that fails ends the script unless || follows.
func (p *ipxe) run(ctx context.Context, lines []string) (Boot, error) {
	for at, steps := 0, 0; at < len(lines); steps++ {
		if err := ctx.Err(); err != nil {
			return Boot{}, err
		}
		if steps > maxSteps {
			return Boot{}, errors.New("the boot script runs for ever")
		}
		line := strings.TrimSpace(lines[at])
		at++
		if line == "" || line[0] == '#' || line[0] == ':' {
			continue
		}
		label, boot, err := p.line(ctx, line)
		switch {
		case err != nil:
			return Boot{}, err
		case boot != nil:
			return *boot, nil
		case label != "":
			if at = find(lines, label); at < 0 {
				return Boot{}, fmt.Errorf("the boot script has no label %q", label)
			}
		}
	}
	return Boot{}, errors.New("the boot script ended without booting")
}

func find(lines []string, label string) int {
	for i, l := range lines {
		if strings.TrimSpace(l) == ":"+label {
			return i
		}
	}
	return -1
}

// line runs the commands of one line from left to right: the one after || when
// the last that ran has failed, the one after && when it has not. An empty
// command succeeds. A label to go to, something booted or a restart ends the
// line.
func (p *ipxe) line(ctx context.Context, line string) (label string, boot *Boot, err error) {
	words := strings.Fields(line)
	for join := "&&"; ; {
		n := 0
		for n < len(words) && words[n] != "||" && words[n] != "&&" {
			n++
		}
		if (join == "&&") == (err == nil) {
			if label, boot, err = "", nil, nil; n > 0 {
				label, boot, err = p.command(ctx, words[:n])
			}
			if label != "" || boot != nil || errors.Is(err, errReboot) || ctx.Err() != nil {
				return label, boot, err
			}
		}
		if n == len(words) {
			return "", nil, err
		}
		join, words = words[n], words[n+1:]
	}
}

func (p *ipxe) command(ctx context.Context, words []string) (label string, boot *Boot, err error) {
	name, args := words[0], words[1:]
	for i, a := range args {
		args[i] = p.expand(a)
	}
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch name {
	case "echo":
		p.wire.Say("iPXE: " + strings.Join(args, " "))
	case "set":
		p.vars[variable(arg(0))] = arg(1)
	case "inc":
		n, _ := strconv.Atoi(p.vars[variable(arg(0))])
		p.vars[variable(arg(0))] = strconv.Itoa(n + 1)
	case "iseq":
		if arg(0) != arg(1) {
			err = fmt.Errorf("%q is not %q", arg(0), arg(1))
		}
	case "sleep":
		var s int
		if s, err = strconv.Atoi(arg(0)); err == nil {
			err = p.wire.Sleep(ctx, time.Duration(s)*time.Second)
		}
	case "goto":
		label = arg(0)
	case "reboot":
		err = errReboot
	case "chain":
		var b Boot
		if b, err = p.chain(ctx, arg(len(options(args)))); err == nil {
			boot = &b
		}
	case "kernel", "initrd":
		err = p.load(ctx, name, args[len(options(args)):])
	case "boot":
		if p.kernel == nil {
			return "", nil, errors.New("no kernel was loaded")
		}
		boot = p.kernel
	default:
		err = fmt.Errorf("iPXE has no command %q", name)
	}
	return label, boot, err
}

// options returns the leading options of a command; --name takes a value.
func options(args []string) []string {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "--") {
			return args[:i]
		}
		if args[i] == "--name" {
			i++
		}
	}
	return args
}

func (p *ipxe) load(ctx context.Context, what string, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s: no URL", what)
	}
	b, err := p.wire.HTTP(ctx, args[0])
	if err != nil {
		return err
	}
	if what == "kernel" {
		p.kernel = &Boot{Kernel: b, Args: append([]string(nil), args[1:]...)}
		return nil
	}
	if p.kernel == nil {
		return errors.New("an initrd before its kernel")
	}
	p.kernel.Initrd = b
	return nil
}

// variable drops the type of a setting: tries:int32 is tries.
func variable(s string) string {
	name, _, _ := strings.Cut(s, ":")
	return name
}

// expand replaces ${name} and ${name:uristring}; what is not set is empty.
func (p *ipxe) expand(s string) string {
	var b strings.Builder
	for {
		head, rest, ok := strings.Cut(s, "${")
		b.WriteString(head)
		if !ok {
			return b.String()
		}
		name, tail, ok := strings.Cut(rest, "}")
		if !ok {
			b.WriteString("${" + rest)
			return b.String()
		}
		name, kind, _ := strings.Cut(name, ":")
		v := p.vars[name]
		if kind == "uristring" {
			v = uriString(v)
		}
		b.WriteString(v)
		s = tail
	}
}

// uriString escapes as iPXE does: all but unreserved characters (RFC 3986).
func uriString(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
