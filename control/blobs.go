package control

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"muster.internal"
	"muster.internal/image"
)

// blobGrace is how long content stays that no manifest names: an image is sent
// content first, and whoever was told that a blob is there does not send it.
const blobGrace = 24 * time.Hour

// want tells whether a blob is stored here, and if so keeps it for blobGrace.
func (c *Control) want(digest string) (bool, error) {
	c.collecting.Lock()
	defer c.collecting.Unlock()
	return c.blobs.Touch(digest, c.now())
}

// missing lists the files of an image that are not stored here. The others stay
// for blobGrace, which is longer than any manifest takes to be written down.
func (c *Control) missing(i muster.Image) ([]muster.ImageFile, error) {
	var ms []muster.ImageFile
	for _, f := range image.Files(i) {
		there, err := c.want(f.Digest)
		if err != nil {
			return nil, err
		}
		if !there {
			ms = append(ms, f)
		}
	}
	return ms, nil
}

// collect removes the blobs that no manifest names, not even one whose name
// means a newer image by now, and that nobody has wanted for blobGrace. A
// manifest that is added while this runs has wanted its blobs before it is
// written down: either they are young here, or they were missed there.
func (c *Control) collect(ctx context.Context) error {
	kept, err := c.store.Manifests(ctx)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, i := range kept {
		for _, f := range image.Files(i) {
			named[f.Digest] = true
		}
	}
	c.collecting.Lock()
	defer c.collecting.Unlock()
	removed := 0
	err = c.blobs.Sweep(func(digest string) bool {
		if named[digest] {
			return true
		}
		wanted, err := c.blobs.Wanted(digest)
		if err != nil {
			return !errors.Is(err, fs.ErrNotExist)
		}
		if c.now().Sub(wanted) < blobGrace {
			return true
		}
		removed++
		return false
	})
	if removed > 0 {
		c.log.Info("content that no image names was removed", "blobs", removed)
	}
	return err
}
