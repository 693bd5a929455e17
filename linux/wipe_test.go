package linux

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"muster.internal"
)

// TestWipeLooksOnceMore: between the comparison with the plan and the first
// write a path may have come to lead elsewhere. Nothing is written then.
func TestWipeLooksOnceMore(t *testing.T) {
	const size = 4 << 20
	for _, c := range []struct {
		name, want string
		spoil      func(l *lab, dev string)
	}{
		{"as planned", "", func(*lab, string) {}},
		{"renamed", "leads to another disk", func(l *lab, dev string) {
			l.Sys.(fstest.MapFS)["block/sda/device/wwid"].Data = []byte("naa.5000000000000009")
		}},
		{"another size", "leads to another disk", func(l *lab, dev string) {
			l.Sys.(fstest.MapFS)["block/sda/size"].Data = []byte("4096")
		}},
		{"pulled", "gone", func(l *lab, dev string) { delete(l.Sys.(fstest.MapFS), "block/sda/size") }},
		{"another device under its name", "is device", func(l *lab, dev string) {
			l.Sys.(fstest.MapFS)["block/sda/dev"] = &fstest.MapFile{Data: []byte("8:0")}
		}},
		{"a link in its place", "too many levels of symbolic links", func(l *lab, dev string) {
			os.Rename(filepath.Join(dev, "sda"), filepath.Join(dev, "other"))
			os.Symlink("other", filepath.Join(dev, "sda"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := t.TempDir()
			l, _ := newLab(t.TempDir(), dev, "sda")
			sys := l.Sys.(fstest.MapFS)
			sys["block/sda/size"].Data = []byte("8192")
			precious := bytes.Repeat([]byte("precious"), size/8)
			if err := os.WriteFile(filepath.Join(dev, "sda"), precious, 0o600); err != nil {
				t.Fatal(err)
			}
			disks, err := ReadDisks(l.Sys, fstest.MapFS{}, dev)
			if err != nil || len(disks) != 1 || disks[0].Size != size {
				t.Fatalf("%+v, %v", disks, err)
			}
			c.spoil(l, dev)
			err = l.Wipe(muster.SetupPlan{VDevs: []muster.VDev{{Disks: disks}}})
			now, rerr := os.ReadFile(filepath.Join(dev, "sda"))
			if rerr != nil {
				t.Fatal(rerr)
			}
			if c.want == "" {
				if err != nil || bytes.HasPrefix(now, []byte("precious")) {
					t.Errorf("not wiped: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !bytes.Equal(now, precious) {
				t.Error("something was written")
			}
		})
	}
}
