package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster.internal"
)

type imageRef struct {
	Ref string `path:"ref" maxLength:"128" doc:"a name, or the manifest's digest (sha256:…)"`
}

type imageName struct {
	Name string `path:"ref" maxLength:"128"`
}

type digest struct {
	Digest string `path:"digest" maxLength:"128" doc:"sha256: and 64 hex digits"`
}

// upload streams: without a Body field huma leaves the request's body alone.
type upload struct {
	Digest string `path:"digest" maxLength:"128" doc:"sha256: and 64 hex digits"`
	r      *http.Request
}

// Resolve keeps the request, whose body is the blob.
func (u *upload) Resolve(ctx huma.Context) []error {
	u.r, _ = humago.Unwrap(ctx)
	return nil
}

func (a *API) images() {
	read, change := may(muster.ActImageRead), may(muster.ActImageChange)
	fetch := may(muster.ActImageRead, muster.ActBooterFeed)
	add(a, op{method: get, path: "/v1/images", id: "list-images", summary: "List platform images", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.Image], error) {
			return listed(s.Images(ctx))
		})
	add(a, op{method: post, path: "/v1/images", id: "add-image", summary: "Add a manifest whose blobs are all there", acts: change, status: http.StatusCreated},
		func(ctx context.Context, s Session, in *body[muster.Image]) (muster.Image, error) {
			return s.AddImage(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/images/{ref}", id: "get-image", summary: "Show a platform image", acts: fetch},
		func(ctx context.Context, s Session, in *imageRef) (muster.Image, error) {
			if strings.HasPrefix(in.Ref, "sha256:") {
				return s.ImageByDigest(ctx, in.Ref)
			}
			return s.Image(ctx, in.Ref)
		})
	do(a, op{method: remove, path: "/v1/images/{ref}", id: "remove-image", summary: "Remove an image by name", acts: change},
		func(ctx context.Context, s Session, in *imageName) error { return s.RemoveImage(ctx, in.Name) })
	stream(a, op{method: head, path: "/v1/blobs/{digest}", id: "has-blob", summary: "Tell whether a blob is stored", acts: fetch},
		func(ctx context.Context, s Session, in *digest) (func(huma.Context), error) {
			has, err := s.HasBlob(ctx, in.Digest)
			if err == nil && !has {
				err = muster.Problemf(muster.CodeNotFound, "no blob %s", in.Digest)
			}
			return func(ctx huma.Context) { ctx.SetStatus(http.StatusOK) }, err
		})
	do(a, op{method: put, path: "/v1/blobs/{digest}", id: "put-blob", summary: "Store content that has this digest", acts: change, body: "application/octet-stream"},
		func(ctx context.Context, s Session, in *upload) error {
			if in.r.ContentLength <= 0 {
				return muster.Invalid("Content-Length", "must say how many bytes come, and not none")
			}
			return s.PutBlob(ctx, in.Digest, in.r.ContentLength, in.r.Body)
		})
	stream(a, op{method: get, path: "/v1/blobs/{digest}", id: "get-blob", summary: "Fetch a blob", acts: fetch},
		func(ctx context.Context, s Session, in *digest) (func(huma.Context), error) {
			blob, err := s.Blob(ctx, in.Digest)
			if err != nil {
				return nil, err
			}
			return func(ctx huma.Context) { sendBlob(ctx, in.Digest, blob) }, nil
		})
}

// sendBlob serves a file with ranges, anything else as it comes.
func sendBlob(ctx huma.Context, digest string, blob io.ReadCloser) {
	defer blob.Close()
	r, w := humago.Unwrap(ctx)
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", `"`+digest+`"`)
	if file, ok := blob.(io.ReadSeeker); ok {
		http.ServeContent(w, r, "", time.Time{}, file)
		return
	}
	_, _ = io.Copy(w, blob) // the peer compares digest and length
}
