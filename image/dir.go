package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"muster.internal"
	"muster.internal/durable"
)

// An image directory is how an image travels: manifest.json and blobs/, a
// store of its own. It is what Build makes and what `muster image add` takes.
const (
	manifestName = "manifest.json"
	blobsName    = "blobs"
)

// ReadDir opens an image directory. The manifest is verified; the blobs are
// all there with their right sizes, and whoever puts them elsewhere checks
// their digests.
func ReadDir(dir string) (muster.Image, *Blobs, error) {
	var i muster.Image
	raw, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return i, nil, fmt.Errorf("%s is not an image directory: %w", dir, err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&i); err != nil {
		return i, nil, fmt.Errorf("%s: %w", filepath.Join(dir, manifestName), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return i, nil, fmt.Errorf("%s: something follows the manifest", filepath.Join(dir, manifestName))
	}
	if err := Verify(i); err != nil {
		return i, nil, fmt.Errorf("%s: %w", filepath.Join(dir, manifestName), err)
	}
	i.Digest = Digest(i)
	b := &Blobs{filepath.Join(dir, blobsName)}
	for _, f := range Files(i) {
		p, err := b.Path(f.Digest)
		if err != nil {
			return i, nil, err
		}
		st, err := os.Stat(p)
		if err != nil {
			return i, nil, fmt.Errorf("the image's %s is missing: %w", f.Role, err)
		}
		if st.Size() != f.Size {
			return i, nil, fmt.Errorf("the image's %s in %s has %d bytes, the manifest says %d", f.Role, p, st.Size(), f.Size)
		}
	}
	return i, b, nil
}

// writeDir finishes an image directory whose blobs are there: the manifest
// comes last, so that a directory with one is whole.
func writeDir(dir string, i muster.Image) (muster.Image, error) {
	if err := Verify(i); err != nil {
		return i, err
	}
	i.Digest = Digest(i)
	raw, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return i, err
	}
	f, err := os.CreateTemp(dir, partial)
	if err != nil {
		return i, err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	if _, err := f.Write(append(raw, '\n')); err != nil {
		f.Close()
		return i, err
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return i, err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return i, err
	}
	if err := f.Close(); err != nil {
		return i, err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, manifestName)); err != nil {
		return i, err
	}
	return i, durable.SyncDir(dir)
}
