package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOddAddresses: what machines could not use, or would make every client
// throw the certificate away, ends the start.
func TestOddAddresses(t *testing.T) {
	for _, c := range []Config{
		{Advertise: "http://x:1"}, {Advertise: "https://"}, {Advertise: "https://x:99999"}, {Advertise: "https://x:0"},
		{Advertise: "https://u:p4ssw0rd@x:1"}, {Advertise: "https://x:1/?q"}, {Advertise: "https://x:1?"}, {Advertise: "https://x:1#f"}, {Advertise: "https://x:1/a"},
		{Advertise: "https://a_b:1"}, {Listen: "foo"},
		{Names: []string{"a b"}}, {Names: []string{"*.x"}}, {Names: []string{"ü.de"}}, {Names: []string{"-x"}}, {Names: []string{"a..b"}},
		{Names: []string{"a/b"}}, {Names: []string{""}}, {Names: []string{strings.Repeat("x", 64)}}, {Names: []string{"a\x00b"}}, {Names: []string{"::1%lo"}},
		{Store: "mysql://u:p4ssw0rd@x/y"},
	} {
		c.Dir = t.TempDir()
		if got, err := Open(t.Context(), c); err == nil || strings.Contains(err.Error(), "p4ssw0rd") {
			t.Errorf("%+v: %v", c, err)
			if got != nil {
				got.Close()
			}
		}
	}
	for _, c := range []Config{
		{Advertise: "https://[2001:db8::1]:8443/"}, {Advertise: "https://muster.example"}, {Listen: ":0"}, {Listen: "[::1]:0"},
		{Names: []string{"10.77.0.1", "Muster.Example", "[::1]", "xn--bcher-kva.example"}},
	} {
		c.Dir = t.TempDir()
		got, err := Open(t.Context(), c)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		got.Close()
	}
}

// TestLostCertificateIsNotReplaced: another CA under the old one's feet would
// leave every machine behind. A first start that was cut short goes on.
func TestLostCertificateIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	open := func() error {
		c, err := Open(t.Context(), Config{Dir: dir})
		if err == nil {
			err = c.Close()
		}
		return err
	}
	remove := func(file string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, "tls", file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	remove("ca.pem")
	if err := open(); err == nil || !strings.Contains(err.Error(), "restore ca.pem") {
		t.Errorf("without ca.pem: %v", err)
	}
	remove("server.pem")
	if err := open(); err != nil {
		t.Errorf("after a first start that was cut short: %v", err)
	}
}
