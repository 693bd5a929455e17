package booter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/durable"
	"muster.internal/image"
)

// A stage is the images that can be served: those that policy and records
// name, fetched by digest, checked, whole.
type stage struct {
	dir     string       // of manifests, each in a file named after its digest
	blobs   *image.Blobs // opened when the booter runs
	control muster.ForBooter
	machine *Directory
	log     *slog.Logger
	changed func()

	mu     sync.RWMutex
	images map[string]*muster.Image // by manifest digest
	errs   map[string]string        // what goes wrong, by manifest digest
}

func newStage(dir string, control muster.ForBooter, d *Directory, log *slog.Logger, changed func()) *stage {
	return &stage{dir: dir, control: control, machine: d, log: log, changed: changed,
		images: map[string]*muster.Image{}, errs: map[string]string{}}
}

// lookup is for the packet path; nil: not staged.
func (s *stage) lookup(digest string) *muster.Image {
	s.mu.RLock()
	i := s.images[digest]
	s.mu.RUnlock()
	return i
}

// status lists what is staged and what goes wrong.
func (s *stage) status() (staged, errs []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.images)), slices.Sorted(maps.Values(s.errs))
}

// Between looks at what is wanted, at least.
const stagePause = 100 * time.Millisecond

// run reads what the last run has staged, then fetches what is missing as the
// directory changes. One image after the other: machines that boot meanwhile
// share the same wire.
func (s *stage) run(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := s.load(); err != nil {
		return err
	}
	failed := 0
	for {
		changed := s.machine.Changed()
		missing := s.missing()
		ok := true
		for _, ref := range missing {
			ok = s.fetch(ctx, ref) && ok
		}
		if failed++; ok {
			failed = 0
		}
		s.rest(ctx, changed, failed)
		if !pause(ctx, stagePause) {
			return nil
		}
	}
}

// rest waits for a change, or until it is time to try again.
func (s *stage) rest(ctx context.Context, changed <-chan struct{}, failed int) {
	var again <-chan time.Time
	if failed > 0 {
		t := time.NewTimer(backoff(failed - 1))
		defer t.Stop()
		again = t.C
	}
	select {
	case <-ctx.Done():
	case <-again:
	case <-changed:
	}
}

// load takes in the manifests on disk whose content is still what it should
// be. What is damaged is removed, and fetched again when it is wanted.
func (s *stage) load() error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue
		}
		if err := s.loadImage("sha256:" + name); err != nil {
			s.log.Error("a staged image is damaged; it is fetched again if it is still wanted", "digest", name, "error", err)
			os.Remove(filepath.Join(s.dir, f.Name()))
		}
	}
	return nil
}

func (s *stage) loadImage(digest string) error {
	raw, err := os.ReadFile(s.manifest(digest))
	if err != nil {
		return err
	}
	var i muster.Image
	if err := json.Unmarshal(raw, &i); err != nil {
		return err
	}
	if err := verify(&i, digest); err != nil {
		return err
	}
	for _, f := range image.Files(i) {
		if err := s.blobs.Check(f.Digest); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				err = errors.Join(err, s.blobs.Remove(f.Digest))
			}
			return err
		}
	}
	s.put(digest, &i)
	return nil
}

func (s *stage) manifest(digest string) string {
	return filepath.Join(s.dir, strings.TrimPrefix(digest, "sha256:")+".json")
}

func verify(i *muster.Image, digest string) error {
	if err := image.Verify(*i); err != nil {
		return err
	}
	if got := image.Digest(*i); got != digest {
		return fmt.Errorf("the manifest is %s", got)
	}
	i.Digest = digest
	return nil
}

func (s *stage) put(digest string, i *muster.Image) {
	s.mu.Lock()
	s.images[digest] = i
	delete(s.errs, digest)
	s.mu.Unlock()
	s.changed()
}

// missing lists the images that policy and records name and that are not here.
// Errors about images that nobody wants any more are forgotten.
func (s *stage) missing() []muster.ImageRef {
	wanted := s.machine.wanted()
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.errs {
		if _, ok := wanted[d]; !ok {
			delete(s.errs, d)
		}
	}
	var refs []muster.ImageRef
	for _, d := range slices.Sorted(maps.Keys(wanted)) {
		if s.images[d] == nil {
			refs = append(refs, muster.ImageRef{Name: wanted[d], Digest: d})
		}
	}
	return refs
}

// fetch stages one image; false: it did not work, and is worth trying again.
func (s *stage) fetch(ctx context.Context, ref muster.ImageRef) bool {
	began := time.Now()
	bytes, err := s.pull(ctx, ref.Digest)
	if err == nil {
		s.log.Info("image staged", "image", ref.Name, "digest", ref.Digest, "fetched_bytes", bytes, "seconds", time.Since(began).Seconds())
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	text := fmt.Sprintf("image %s (%s) cannot be staged: %v", ref.Name, ref.Digest, err)
	s.mu.Lock()
	news := s.errs[ref.Digest] != text
	s.errs[ref.Digest] = text
	s.mu.Unlock()
	if news {
		s.log.Error("an image cannot be staged; it is tried again", "image", ref.Name, "digest", ref.Digest, "error", err)
		s.changed()
	}
	return false
}

// pull fetches the manifest and the blobs that are not here yet, so that an
// interrupted fetch goes on with the blob that it stopped in.
func (s *stage) pull(ctx context.Context, digest string) (bytes int64, err error) {
	if !image.ValidDigest(digest) {
		return 0, fmt.Errorf("%q is not a digest", digest)
	}
	i, err := s.control.ImageByDigest(ctx, digest)
	if err != nil {
		return 0, err
	}
	if err := verify(&i, digest); err != nil {
		return 0, err
	}
	for _, f := range s.blobs.Missing(i) {
		if err := s.pullBlob(ctx, f); err != nil {
			return bytes, fmt.Errorf("%s: %w", f.Role, err)
		}
		bytes += f.Size
	}
	raw, err := json.Marshal(i)
	if err != nil {
		return bytes, err
	}
	if err := durable.Replace(s.manifest(digest), raw, 0o600); err != nil {
		return bytes, err
	}
	s.put(digest, &i)
	return bytes, nil
}

func (s *stage) pullBlob(ctx context.Context, f muster.ImageFile) error {
	r, err := s.control.Blob(ctx, f.Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	return s.blobs.Put(f.Digest, f.Size, r)
}

// wanted is what policy and records name: digest to name.
func (d *Directory) wanted() map[string]string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	w := map[string]string{}
	add := func(r *muster.ImageRef) {
		if r != nil && r.Digest != "" {
			w[r.Digest] = r.Name
		}
	}
	add(d.policy.EnrollmentPI)
	add(d.policy.RescuePI)
	for _, r := range d.machines {
		add(r.AssignedPI)
	}
	return w
}
