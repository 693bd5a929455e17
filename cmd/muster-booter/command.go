package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"muster.internal"
	"muster.internal/booter"
	"muster.internal/client"
)

// settings are the flags.
type settings struct {
	name, control, ca      string
	keyFile, enrollKeyFile string
	iface, address         string
	dir, ipxe              string
	busUser, busPasswordAt string
	user                   string
	debug, proxy           bool
	dhcp, tftp, http, amqp int
}

func command(stderr io.Writer) *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "muster-booter",
		Short: "The boot server of one network segment: DHCP, TFTP, HTTP and the boot bus",
		Long: `muster-booter answers machines that ask the network for something to boot, as
the control plane's records and boot policy say. It answers from memory: known
machines keep booting while the control plane is away.

It needs two keys, made with "muster key create": one of scope booter, one of
scope ur_enroll. Started as root with --user it binds its sockets and then lives
on as that user. With ports above 1023 it needs no privilege.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, Version: muster.Build,
		RunE: func(c *cobra.Command, _ []string) error { return s.serve(c, stderr) },
	}
	f := c.Flags()
	f.StringVar(&s.control, "control", "", "`URL` of the control plane, https://HOST:PORT")
	f.StringVar(&s.ca, "ca", "", "the control plane's CA: a PEM `FILE`, or its SHA-256 fingerprint")
	f.StringVar(&s.keyFile, "key-file", "", "`FILE` with the key of scope booter")
	f.StringVar(&s.enrollKeyFile, "enroll-key-file", "", "`FILE` with the key of scope ur_enroll")
	f.StringVar(&s.name, "name", "", "this booter's name (default: the host name)")
	f.StringVar(&s.iface, "interface", "", "the `INTERFACE` that machines boot on (default: any)")
	f.StringVar(&s.address, "address", "", "our `ADDRESS` as machines see it (default: the interface's first)")
	f.IntVar(&s.dhcp, "dhcp-port", 67, "UDP `PORT` for DHCP; below 0: not served")
	f.IntVar(&s.tftp, "tftp-port", 69, "UDP `PORT` for TFTP; below 0: not served")
	f.IntVar(&s.http, "http-port", 80, "TCP `PORT` for HTTP; below 0: not served")
	f.IntVar(&s.amqp, "bus-port", 5672, "TCP `PORT` for the boot bus; below 0: not served")
	f.StringVar(&s.dir, "dir", "/var/lib/muster-booter", "`DIRECTORY` for cache, images and journal")
	f.StringVar(&s.ipxe, "ipxe", "/usr/lib/ipxe", "`DIRECTORY` with undionly.kpxe, snponly.efi and, for arm64, ipxe-arm64.efi")
	f.BoolVar(&s.proxy, "proxy", false, "say only what to boot: a DHCP server of the site gives addresses here, and reserves one for each machine")
	f.StringVar(&s.busUser, "bus-user", "muster", "`NAME` that machines log in to the boot bus with")
	f.StringVar(&s.busPasswordAt, "bus-password-file", "", "`FILE` with their password (default: one is made and kept in --dir)")
	f.StringVar(&s.user, "user", "", "`USER` to become once the sockets are bound")
	f.BoolVar(&s.debug, "debug", false, "log every transfer")
	c.AddCommand(loaders())
	for _, name := range []string{"control", "ca", "key-file", "enroll-key-file"} {
		c.MarkFlagRequired(name)
	}
	return c
}

// serve reads what only root may read, binds, drops privileges and runs.
func (s *settings) serve(c *cobra.Command, stderr io.Writer) error {
	who, err := lookup(s.user)
	if err != nil {
		return err
	}
	cfg, err := s.config(stderr)
	if err != nil {
		return err
	}
	if err := makeDir(s.dir, who); err != nil {
		return err
	}
	if cfg.BusPassword, err = s.busPassword(who); err != nil {
		return err
	}
	b, err := booter.Listen(cfg)
	if err != nil {
		return err
	}
	if err := who.become(); err != nil {
		b.Close()
		return err
	}
	return b.Run(c.Context())
}

func (s *settings) config(stderr io.Writer) (booter.Config, error) {
	level := slog.LevelInfo
	if s.debug {
		level = slog.LevelDebug
	}
	cfg := booter.Config{Name: s.name, Dir: s.dir, IPXE: s.ipxe, Interface: s.iface, Proxy: s.proxy, BusUser: s.busUser,
		Ports: booter.Ports{DHCP: s.dhcp, TFTP: s.tftp, HTTP: s.http, Bus: s.amqp},
		Log:   slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))}
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return cfg, fmt.Errorf("this host has no name; give the booter one with --name: %w", err)
		}
		cfg.Name = host
	}
	if s.address != "" {
		a, err := netip.ParseAddr(s.address)
		if err != nil {
			return cfg, fmt.Errorf("--address: %w", err)
		}
		if !a.Is4() {
			return cfg, fmt.Errorf("--address: %s is an IPv6 address: machines boot over IPv4 alone, give an IPv4 address", a)
		}
		cfg.Address = a
	}
	trust := client.Trust{Fingerprint: s.ca}
	if pem, err := os.ReadFile(s.ca); err == nil {
		trust = client.Trust{CA: pem}
	} else if strings.ContainsAny(s.ca, "./") {
		return cfg, fmt.Errorf("--ca: %w", err)
	}
	key, err := secret("--key-file", s.keyFile)
	if err != nil {
		return cfg, err
	}
	enrollKey, err := secret("--enroll-key-file", s.enrollKeyFile)
	if err != nil {
		return cfg, err
	}
	control, err := client.New(s.control, key, trust)
	if err != nil {
		return cfg, err
	}
	cfg.Control, cfg.Enroll = control, control.WithToken(enrollKey)
	return cfg, nil
}

// secret reads a file with one secret in it.
func secret(flag, file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	t := strings.TrimSpace(string(b))
	if t == "" {
		return "", fmt.Errorf("%s: %s is empty", flag, file)
	}
	return t, nil
}

// busPassword reads the password of the boot bus, or makes one that lasts:
// machines that have booted go on using theirs after a restart of ours.
func (s *settings) busPassword(who identity) (string, error) {
	if s.busPasswordAt != "" {
		return secret("--bus-password-file", s.busPasswordAt)
	}
	const name = "bus-password"
	// The directory is another user's: no link may lead out of it.
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	b, err := root.ReadFile(name)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the boot bus's password: %w", err)
	}
	raw := make([]byte, 18)
	rand.Read(raw)
	b = []byte(base64.RawURLEncoding.EncodeToString(raw))
	if err := root.WriteFile(name, b, 0o600); err != nil {
		return "", fmt.Errorf("keeping the boot bus's password: %w", err)
	}
	return string(b), who.own(root, name)
}
