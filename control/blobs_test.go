package control

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"muster.internal"
	"muster.internal/image"
)

// TestContentGoesWithTheLastImageThatNamesIt, and not before.
func TestContentGoesWithTheLastImageThatNamesIt(t *testing.T) {
	c, now := opened(t)
	s := c.As(root)
	put := func(content string) muster.ImageFile {
		d := image.DigestOf([]byte(content))
		if err := s.PutBlob(t.Context(), d, int64(len(content)), bytes.NewReader([]byte(content))); err != nil {
			t.Fatal(err)
		}
		return muster.ImageFile{Digest: d, Size: int64(len(content))}
	}
	made := func(name string, kernel, initrd muster.ImageFile) muster.Image {
		kernel.Role, initrd.Role = "kernel", "initrd"
		return muster.Image{Name: name, Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64", Files: []muster.ImageFile{kernel, initrd}}}}
	}
	add := func(i muster.Image) {
		t.Helper()
		if _, err := s.AddImage(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := s.RemoveImage(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	there := func(when string, want map[string]bool) {
		t.Helper()
		for content, want := range want { // not by HasBlob, which keeps what it is asked for
			if c.blobs.Has(image.DigestOf([]byte(content))) != want {
				t.Errorf("%s: %q is there: %v", when, content, !want)
			}
		}
	}
	kernel, old, newer, other := put("kernel"), put("old"), put("newer"), put("other")
	orphan := put("orphan")
	add(made("a", kernel, old))
	add(made("a", kernel, newer)) // retires the first, which a record may still name
	add(made("b", kernel, other))
	add(made("young", kernel, put("young")))

	remove("young")
	there("within a day", map[string]bool{"kernel": true, "old": true, "newer": true, "other": true, "young": true, "orphan": true})

	*now = now.Add(25 * time.Hour)
	if ok, err := s.HasBlob(t.Context(), orphan.Digest); !ok || err != nil {
		t.Fatal(ok, err)
	}
	remove("b")
	there("a day later", map[string]bool{"kernel": true, "old": true, "newer": true, "other": false, "young": false, "orphan": true})

	// Who was told that content is there may name it, a day long.
	*now = now.Add(23 * time.Hour)
	remove("nothing of this name")
	add(made("c", kernel, orphan))
	*now = now.Add(25 * time.Hour)
	remove("a")
	there("two images fewer", map[string]bool{"kernel": true, "old": false, "newer": false, "orphan": true})

	// What was collected is asked for again, not listed without content.
	_, err := s.AddImage(t.Context(), made("b", kernel, other))
	if !muster.IsCode(err, muster.CodeConflict) {
		t.Errorf("an image without its content: %v", err)
	}
	put("other")
	add(made("b", kernel, other))
	remove("b")
	remove("c")
	*now = now.Add(25 * time.Hour)
	remove("nothing of this name")
	if left, err := c.blobs.List(); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestCollectionSparesWhatIsBeingAdded: the manifests are read first, and an
// image that is added after that has wanted its content.
func TestCollectionSparesWhatIsBeingAdded(t *testing.T) {
	c, now := opened(t)
	content := []byte("kernel")
	d := image.DigestOf(content)
	if err := c.As(root).PutBlob(t.Context(), d, int64(len(content)), iotest.OneByteReader(bytes.NewReader(content))); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(48 * time.Hour)
	i := muster.Image{Variants: []muster.ImageVariant{{Files: []muster.ImageFile{{Digest: d}}}}}
	if missing, err := c.missing(i); len(missing) != 0 || err != nil {
		t.Fatal(missing, err)
	}
	if err := c.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if missing, err := c.missing(i); len(missing) != 0 || err != nil {
		t.Errorf("it was collected before its manifest was written: %v %v", missing, err)
	}
}

// TestNothingIsCollectedBlindly: without the manifests everything stays.
func TestNothingIsCollectedBlindly(t *testing.T) {
	c, now := opened(t)
	file := filepath.Join(c.cfg.Dir, "blobs", image.DigestOf([]byte("x"))[len("sha256:"):])
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(48 * time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.collect(ctx); err == nil {
		t.Error("collected without a store")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if err := c.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("an old file that nothing names is still there: %v", err)
	}
}
