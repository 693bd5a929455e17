package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"muster.internal"
)

var (
	imageCurrent  = define("images/current", `SELECT manifest, digest, added_at FROM images WHERE name = $1 AND current`)
	imageByDigest = define("images/digest", `SELECT manifest, digest, added_at FROM images WHERE digest = $1`)
	imagesAll     = define("images/list", `SELECT manifest, digest, added_at FROM images WHERE current ORDER BY name`)
	imagesKept    = define("images/kept", `SELECT manifest, digest, added_at FROM images`)
	imagesNamed   = define("images/named", `SELECT manifest, digest, added_at FROM images WHERE name = $1 ORDER BY digest`)

	retireImage = define("images/retire", `UPDATE images SET current = false WHERE name = $1 AND current`)
	addImage    = define("images/add", `
INSERT INTO images (digest, name, current, kind, manifest, added_at) VALUES ($1, $2, true, $3, $4, $5)
ON CONFLICT (digest) DO UPDATE SET current = true`)
	dropImage = define("images/drop", `DELETE FROM images WHERE digest = $1`)

	imageUsers = define("images/users", `
SELECT 'boot record ' || mac FROM boot_records WHERE pi_digest = $1 AND state <> 'decommissioned'
UNION ALL SELECT 'machine ' || server_uuid FROM registrations WHERE pi_digest = $1
ORDER BY 1 LIMIT 4`)
)

func scanImage(scan func(...any) error) (i muster.Image, err error) {
	var manifest, digest string
	var added int64
	if err := scan(&manifest, &digest, &added); err != nil {
		return i, err
	}
	if err := json.Unmarshal([]byte(manifest), &i); err != nil {
		return i, fmt.Errorf("image %s: %w", digest, err)
	}
	at := fromMicro(added)
	i.Digest, i.AddedAt = digest, &at
	return i, nil
}

func findImage(from source, q *query, key string) (i muster.Image, found bool, err error) {
	err = from.each(q, []any{key}, func(scan func(...any) error) error {
		found = true
		i, err = scanImage(scan)
		return err
	})
	return i, found, err
}

// imageKnown tells whether a manifest is there to boot from.
func imageKnown(from source, digest string) (bool, error) {
	_, found, err := findImage(from, imageByDigest, digest)
	return found, err
}

// byReference finds an image by name or by the digest of its manifest.
func byReference(from source, ref string) (muster.Image, bool, error) {
	if strings.HasPrefix(ref, "sha256:") {
		return findImage(from, imageByDigest, ref)
	}
	return findImage(from, imageCurrent, ref)
}

// resolve turns an image's name into name and digest. A digest that comes with
// the name must be what some manifest of that name has: a policy that is read,
// edited and written back keeps its images.
func resolve(from source, field string, r *muster.ImageRef) (*muster.ImageRef, error) {
	if r == nil || r.Name == "" && r.Digest == "" {
		return nil, nil
	}
	key := r.Name
	if r.Digest != "" {
		key = r.Digest
	}
	i, found, err := byReference(from, key)
	if err != nil {
		return nil, err
	}
	if !found || r.Name != "" && i.Name != r.Name {
		return nil, muster.Invalid(field, "there is no image %s: muster image ls shows those there are", strings.TrimSpace(r.Name+" "+r.Digest))
	}
	return &muster.ImageRef{Name: i.Name, Digest: i.Digest}, nil
}

// Images lists the newest image of each name.
func (s *Store) Images(ctx context.Context) ([]muster.Image, error) {
	is := []muster.Image{}
	err := s.read(ctx, "listing images", func(r *reading) error {
		is = is[:0]
		return r.each(imagesAll, nil, func(scan func(...any) error) error {
			i, err := scanImage(scan)
			is = append(is, i)
			return err
		})
	})
	return is, err
}

// Manifests lists every image there is, those too whose name means a newer one:
// whoever had resolved the name boots the old one still.
func (s *Store) Manifests(ctx context.Context) ([]muster.Image, error) {
	var is []muster.Image
	err := s.read(ctx, "listing manifests", func(r *reading) error {
		is = nil
		return r.each(imagesKept, nil, func(scan func(...any) error) error {
			i, err := scanImage(scan)
			is = append(is, i)
			return err
		})
	})
	return is, err
}

// Image finds an image by name or by the digest of its manifest.
func (s *Store) Image(ctx context.Context, ref string) (muster.Image, error) {
	var i muster.Image
	err := s.read(ctx, "reading an image", func(r *reading) (err error) {
		var found bool
		i, found, err = byReference(r, ref)
		if err == nil && !found {
			err = muster.Problemf(muster.CodeNotFound, "there is no image %s", ref)
		}
		return err
	})
	return i, err
}

// AddImage stores a manifest, whose digest and blobs the caller has checked. A
// name that is used again means the new image from now on; whoever had resolved
// it keeps the old one.
func (s *Store) AddImage(ctx context.Context, now time.Time, by muster.Caller, i muster.Image) (muster.Image, error) {
	if !muster.ValidStamp(i.Name) {
		return muster.Image{}, muster.Invalid("name", "a name is 1 to 64 letters, digits, dots, hyphens or underscores")
	}
	if !strings.HasPrefix(i.Digest, "sha256:") || len(i.Digest) != len("sha256:")+64 {
		return muster.Image{}, muster.Invalid("digest", "a manifest's digest is sha256: and 64 hexadecimal digits")
	}
	var added muster.Image
	err := s.write(ctx, "adding an image", now, by, func(t *tx) error {
		at := t.now
		added = i
		added.AddedAt = &at
		if old, found, err := findImage(t, imageByDigest, i.Digest); err != nil {
			return err
		} else if found {
			if old.Name != i.Name {
				return muster.Problemf(muster.CodeConflict, "this image is there already, as %s", old.Name)
			}
			added = old
			if newest, _, err := findImage(t, imageCurrent, i.Name); err != nil || newest.Digest == i.Digest {
				return err
			}
		}
		manifest, err := json.Marshal(added)
		if err != nil {
			return err
		}
		if _, err := t.exec(retireImage, i.Name); err != nil {
			return err
		}
		if _, err := t.exec(addImage, i.Digest, i.Name, string(i.Kind), string(manifest), micro(*added.AddedAt)); err != nil {
			return err
		}
		_, err = t.record("add_image", "image/"+i.Name, detail{"digest": i.Digest, "kind": i.Kind})
		return err
	})
	return added, err
}

// RemoveImage forgets every image of a name, unless something would boot one.
func (s *Store) RemoveImage(ctx context.Context, now time.Time, by muster.Caller, name string) error {
	return s.write(ctx, "removing an image", now, by, func(t *tx) error {
		var gone []muster.Image
		if err := t.each(imagesNamed, []any{name}, func(scan func(...any) error) error {
			i, err := scanImage(scan)
			gone = append(gone, i)
			return err
		}); err != nil {
			return err
		}
		if len(gone) == 0 {
			return nil
		}
		var digests []string
		for _, i := range gone {
			users, err := t.users(i.Digest)
			if err != nil {
				return err
			}
			if len(users) > 0 {
				return muster.Problemf(muster.CodeConflict, "image %s (%.19s…) is used by %s: give them another image first", name, i.Digest, strings.Join(users, ", "))
			}
			if _, err := t.exec(dropImage, i.Digest); err != nil {
				return err
			}
			digests = append(digests, i.Digest)
		}
		_, err := t.record("remove_image", "image/"+name, detail{"digests": digests})
		return err
	})
}

// users names a few of those that would boot the image.
func (t *tx) users(digest string) ([]string, error) {
	p, err := findPolicy(t)
	if err != nil {
		return nil, err
	}
	var users []string
	if ref(p.EnrollmentPI).Digest == digest || ref(p.RescuePI).Digest == digest {
		users = append(users, "the boot policy")
	}
	err = t.each(imageUsers, []any{digest}, func(scan func(...any) error) error {
		var who string
		err := scan(&who)
		users = append(users, who)
		return err
	})
	return users, err
}
