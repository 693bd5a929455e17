package image

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"muster.internal"
)

func sample() muster.Image {
	return muster.Image{Name: "linux-1", Kind: muster.LinuxImage, Comment: "a<b & c", Variants: []muster.ImageVariant{
		{Arch: "arm64", Files: []muster.ImageFile{
			{Role: "kernel", Digest: DigestOf([]byte("k2")), Size: 2}, {Role: "initrd", Digest: DigestOf([]byte("i")), Size: 1}}},
		{Arch: "amd64", Args: []string{"console=ttyS0"}, Files: []muster.ImageFile{
			{Role: "kernel", Digest: DigestOf([]byte("k")), Size: 1}, {Role: "initrd", Digest: DigestOf([]byte("i")), Size: 1}}},
	}}
}

// The spelling is what digests of years to come depend on.
func TestCanonicalSpelling(t *testing.T) {
	want := `{"name":"linux-1","kind":"linux","variants":[` +
		`{"arch":"amd64","files":[{"role":"initrd","digest":"sha256:de7d1b721a1e0632b7cf04edf5032c8ecffa9f9a08492152b926f1a5a7e765d7","size":1},` +
		`{"role":"kernel","digest":"sha256:8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a","size":1}],"args":["console=ttyS0"]},` +
		`{"arch":"arm64","files":[{"role":"initrd","digest":"sha256:de7d1b721a1e0632b7cf04edf5032c8ecffa9f9a08492152b926f1a5a7e765d7","size":1},` +
		`{"role":"kernel","digest":"sha256:015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e","size":2}]}],"comment":"a<b & c"}`
	i := sample()
	got := string(Canonical(i))
	if got != want {
		t.Errorf("canonical JSON changed:\n%s", got)
	}
	d := Digest(i)
	i.Digest = d
	now := time.Unix(1, 0)
	i.AddedAt = &now
	i.Variants[0], i.Variants[1] = i.Variants[1], i.Variants[0]
	i.Variants[0].Files[0], i.Variants[0].Files[1] = i.Variants[0].Files[1], i.Variants[0].Files[0]
	if Digest(i) != d {
		t.Error("order, digest or time of adding changed the digest")
	}
	if err := Verify(i); err != nil {
		t.Error(err)
	}
	i.Name = "linux-2"
	if Digest(i) == d {
		t.Error("the name is not covered")
	}
}

func TestVerifyNamesTheField(t *testing.T) {
	for field, spoil := range map[string]func(*muster.Image){
		"name":                      func(i *muster.Image) { i.Name = "../x" },
		"kind":                      func(i *muster.Image) { i.Kind = "windows" },
		"variants":                  func(i *muster.Image) { i.Variants = nil },
		"variants[0].arch":          func(i *muster.Image) { i.Variants[0].Arch = "x86_64" },
		"variants[1].arch":          func(i *muster.Image) { i.Variants[1].Arch = "arm64" },
		"variants[0].files":         func(i *muster.Image) { i.Variants[0].Files = i.Variants[0].Files[:1] },
		"variants[0].files[1].role": func(i *muster.Image) { i.Variants[0].Files[1].Role = "kernel" },
		"variants[1].files[0].role": func(i *muster.Image) { i.Variants[1].Files[0].Role = "unix" },
		"variants[0].files[0].size": func(i *muster.Image) { i.Variants[0].Files[0].Size = 0 },
		"variants[1].args[0]":       func(i *muster.Image) { i.Variants[1].Args = []string{"x=${secret}"} },
		"digest":                    func(i *muster.Image) { i.Digest = DigestOf(nil) },
		"comment":                   func(i *muster.Image) { i.Comment = strings.Repeat("x", 1025) },
		"variants[0].files[0].digest": func(i *muster.Image) {
			i.Variants[0].Files[0].Digest = "sha256:" + strings.Repeat("A", 64)
		},
	} {
		i := sample()
		spoil(&i)
		var p *muster.Problem
		if err := Verify(i); !errors.As(err, &p) || len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestBlobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := OpenBlobs(dir)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("muster"), 50_000)
	d := DigestOf(body)
	bad := []struct {
		name   string
		digest string
		size   int64
		r      io.Reader
	}{
		{"short", d, int64(len(body)) + 1, bytes.NewReader(body)},
		{"long", d, int64(len(body)) - 1, bytes.NewReader(body)},
		{"other content", DigestOf(nil), int64(len(body)), bytes.NewReader(body)},
		{"broken off", d, int64(len(body)), io.MultiReader(bytes.NewReader(body[:100]), iotest.ErrReader(io.ErrUnexpectedEOF))},
		{"no digest", "../../etc/passwd", 1, strings.NewReader("x")},
	}
	for _, c := range bad {
		if err := b.Put(c.digest, c.size, c.r); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: left %s", c.name, left[0].Name())
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := b.Put(d, int64(len(body)), bytes.NewReader(body)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files after eight puts of one blob", len(left))
	}
	if err := b.Put(d, 1, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil || !b.Has(d) {
		t.Error("a blob that is there was read again:", err)
	}
	if got, err := b.List(); err != nil || len(got) != 1 || got[0] != d {
		t.Error(got, err)
	}
	if err := b.Check(d); err != nil {
		t.Error(err)
	}
	p, _ := b.Path(d)
	if err := os.WriteFile(p, []byte("rot"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(d); err == nil {
		t.Error("a damaged blob passed")
	}
	for range 2 {
		if err := b.Remove(d); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Open(d); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestOpenBlobsSweepsWhatAKilledPutLeft(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, partial+"1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBlobs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Error("left:", left)
	}
	i := sample()
	if got := b.Missing(i); len(got) != 3 {
		t.Error("missing:", got)
	}
}

func TestImageDirectory(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenBlobs(filepath.Join(dir, blobsName))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"k", "k2", "i"} {
		if err := b.Put(DigestOf([]byte(s)), int64(len(s)), strings.NewReader(s)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := ReadDir(dir); err == nil {
		t.Error("no manifest, no error")
	}
	made, err := writeDir(dir, sample())
	if err != nil {
		t.Fatal(err)
	}
	got, blobs, err := ReadDir(dir)
	if err != nil || got.Digest != made.Digest || len(blobs.Missing(got)) != 0 {
		t.Fatal(got, err)
	}
	if err := b.Remove(DigestOf([]byte("k2"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadDir(dir); err == nil || !strings.Contains(err.Error(), "kernel") {
		t.Error("a missing kernel:", err)
	}
	m := filepath.Join(dir, manifestName)
	for _, junk := range []string{`{"name":"x","colour":1}`, `{} {}`, `[`} {
		if err := os.WriteFile(m, []byte(junk), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadDir(dir); err == nil {
			t.Errorf("%s: accepted", junk)
		}
	}
}
