package control

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"

	"muster.internal"
	"muster.internal/image"
)

func (s session) Images(ctx context.Context) ([]muster.Image, error) { return s.store.Images(ctx) }

func (s session) Image(ctx context.Context, ref string) (muster.Image, error) {
	return s.store.Image(ctx, ref)
}

func (s session) ImageByDigest(ctx context.Context, digest string) (muster.Image, error) {
	if !image.ValidDigest(digest) {
		return muster.Image{}, muster.Invalid("digest", "must be sha256: and 64 lower-case hex digits")
	}
	return s.store.Image(ctx, digest)
}

func (s session) HasBlob(_ context.Context, digest string) (bool, error) {
	if !image.ValidDigest(digest) {
		return false, muster.Invalid("digest", "must be sha256: and 64 lower-case hex digits")
	}
	return s.want(digest)
}

func (s session) PutBlob(_ context.Context, digest string, size int64, r io.Reader) error {
	if !image.ValidDigest(digest) {
		return muster.Invalid("digest", "must be sha256: and 64 lower-case hex digits")
	}
	if size <= 0 {
		return muster.Invalid("size", "a blob has at least one byte")
	}
	if there, err := s.want(digest); there || err != nil {
		return err
	}
	body := &upload{r: r}
	err := s.blobs.Put(digest, size, body)
	switch {
	case err == nil:
		return nil
	case body.err != nil:
		s.log.Info("an upload was broken off", "blob", digest, "caller", s.by.String(), "error", body.err)
		return muster.Invalid("body", "the content ended before its %d bytes had come; nothing was kept", size)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		s.log.Error("a blob cannot be stored", "blob", digest, "error", err)
		p := muster.Problemf(muster.CodeUnavailable, "the disk where images are kept is full or cannot be written; nothing was kept: make room on the control plane's host, then send it again")
		p.RetryAfter = 30
		return p
	}
	return err
}

// An upload remembers whether it was its sender that failed.
type upload struct {
	r   io.Reader
	err error
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.r.Read(b)
	if err != nil && err != io.EOF {
		u.err = err
	}
	return n, err
}

func (s session) Blob(_ context.Context, digest string) (io.ReadCloser, error) {
	if !image.ValidDigest(digest) {
		return nil, muster.Invalid("digest", "must be sha256: and 64 lower-case hex digits")
	}
	f, err := s.blobs.Open(digest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Problemf(muster.CodeNotFound, "no blob %s is stored here", digest)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// AddImage stores a manifest. Content comes first, so that what is listed can
// be booted.
func (s session) AddImage(ctx context.Context, i muster.Image) (muster.Image, error) {
	if err := image.Verify(i); err != nil {
		return muster.Image{}, err
	}
	missing, err := s.missing(i)
	if err != nil {
		return muster.Image{}, err
	}
	if len(missing) > 0 {
		p := muster.Problemf(muster.CodeConflict, "image %s names content that was not sent: put it first", i.Name)
		for _, f := range missing {
			p.Errors = append(p.Errors, muster.FieldError{Field: f.Role, Message: "blob " + f.Digest + " is not stored here"})
		}
		return muster.Image{}, p
	}
	i.Digest = image.Digest(i)
	return s.store.AddImage(ctx, s.now(), s.by, i)
}

// RemoveImage forgets the images of a name, and then whatever content nobody
// needs any more. What cannot be collected now is at the next removal.
func (s session) RemoveImage(ctx context.Context, name string) error {
	if err := s.store.RemoveImage(ctx, s.now(), s.by, name); err != nil {
		return err
	}
	if err := s.collect(ctx); err != nil {
		s.log.Error("content that no image names could not be removed; it is tried again when the next image is removed", "error", err)
	}
	return nil
}
