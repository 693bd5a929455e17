package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/durable"
)

// Blobs is content on disk, each in a file named after its digest. Several
// goroutines may use one; a directory has one process that writes to it.
type Blobs struct{ dir string }

const partial = "partial-"

// OpenBlobs makes the directory if it is not there, and removes what an
// interrupted Put has left.
func OpenBlobs(dir string) (*Blobs, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, partial+"*"))
	if err != nil {
		return nil, err
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	return &Blobs{dir}, nil
}

// Path is where a blob lies, or would. A digest that is not one has no path.
func (b *Blobs) Path(digest string) (string, error) {
	if !ValidDigest(digest) {
		return "", muster.Invalid("digest", "%q is not sha256: and 64 hex digits", digest)
	}
	return filepath.Join(b.dir, strings.TrimPrefix(digest, "sha256:")), nil
}

// Has tells whether a blob is there.
func (b *Blobs) Has(digest string) bool {
	p, err := b.Path(digest)
	if err != nil {
		return false
	}
	st, err := os.Lstat(p)
	return err == nil && st.Mode().IsRegular()
}

// Touch notes that a blob was wanted at a time, as if it had been put then. It
// is false when the blob is not there.
func (b *Blobs) Touch(digest string, at time.Time) (bool, error) {
	if !b.Has(digest) {
		return false, nil
	}
	p, err := b.Path(digest)
	if err != nil {
		return false, err
	}
	err = os.Chtimes(p, at, at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Wanted is when a blob was last put or touched.
func (b *Blobs) Wanted(digest string) (time.Time, error) {
	p, err := b.Path(digest)
	if err != nil {
		return time.Time{}, err
	}
	st, err := os.Lstat(p)
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

// Open returns a blob; the caller closes it. An absent one is fs.ErrNotExist.
func (b *Blobs) Open(digest string) (*os.File, error) {
	p, err := b.Path(digest)
	if err != nil {
		return nil, err
	}
	return os.Open(p)
}

// Put keeps what r says, if it has this digest and size (below 0: any size).
// After it returns nil the blob is on disk, whole; after an error nothing is.
// A blob that is there already is not read again.
func (b *Blobs) Put(digest string, size int64, r io.Reader) (err error) {
	p, err := b.Path(digest)
	if err != nil {
		return err
	}
	if b.Has(digest) {
		return nil
	}
	f, err := os.CreateTemp(b.dir, partial)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	sum := sha256.New()
	src := r
	if size >= 0 {
		src = io.LimitReader(r, size+1) // one more, to notice that there is more
	}
	n, err := io.Copy(io.MultiWriter(f, sum), src)
	if err != nil {
		return fmt.Errorf("storing blob %s: %w", digest, err)
	}
	if size >= 0 && n != size {
		return muster.Invalid("size", "blob %s: got %s, expected %d bytes", digest, amount(n, size), size)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return muster.Invalid("digest", "the content is %s, not %s", got, digest)
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), p); err != nil {
		return err
	}
	return durable.SyncDir(b.dir)
}

func amount(n, size int64) string {
	if n > size {
		return "more"
	}
	return fmt.Sprintf("%d", n)
}

// Check reads a blob again and tells whether it still is what its name says.
func (b *Blobs) Check(digest string) error {
	f, err := b.Open(digest)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("reading blob %s: %w", digest, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("blob %s is damaged: its content is %s; remove it and fetch it again", digest, got)
	}
	return nil
}

// Remove removes a blob; an absent one is a success.
func (b *Blobs) Remove(digest string) error {
	p, err := b.Path(digest)
	if err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns every digest that is there, in order.
func (b *Blobs) List() ([]string, error) {
	es, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	var ds []string
	for _, e := range es {
		if d := "sha256:" + e.Name(); ValidDigest(d) && e.Type().IsRegular() {
			ds = append(ds, d)
		}
	}
	return ds, nil
}

// Missing returns the files of an image that are not there.
func (b *Blobs) Missing(i muster.Image) []muster.ImageFile {
	var ms []muster.ImageFile
	for _, f := range Files(i) {
		if !b.Has(f.Digest) {
			ms = append(ms, f)
		}
	}
	return ms
}

// Sweep removes every blob that keep does not want.
func (b *Blobs) Sweep(keep func(digest string) bool) error {
	ds, err := b.List()
	if err != nil {
		return err
	}
	for _, d := range ds {
		if !keep(d) {
			if err := b.Remove(d); err != nil {
				return err
			}
		}
	}
	return nil
}
