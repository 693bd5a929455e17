package booter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster.internal/boot"
)

const (
	maxLoader    = 8 << 20 // bytes
	loadersEvery = 10 * time.Second
)

// loaders are the boot loaders of the iPXE directory, in memory.
type loaders struct {
	dir   string
	log   *slog.Logger
	files atomic.Pointer[map[string][]byte]

	mu    sync.Mutex
	stamp map[string]loaderStamp
}

type loaderStamp struct {
	size int64
	time time.Time
}

// has is for the packet path.
func (l *loaders) has(name string) bool {
	f := l.files.Load()
	return f != nil && len((*f)[name]) > 0
}

func (l *loaders) get(name string) []byte {
	if f := l.files.Load(); f != nil {
		return (*f)[name]
	}
	return nil
}

func (l *loaders) run(ctx context.Context) error {
	for pause(ctx, loadersEvery) {
		l.refresh()
	}
	return nil
}

// refresh reads what has changed in the directory. An empty file is as good as
// none: firmware would hang on it.
func (l *loaders) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	files, stamps := map[string][]byte{}, map[string]loaderStamp{}
	if old := l.files.Load(); old != nil {
		maps.Copy(files, *old)
	}
	for _, set := range boot.LoaderSets() {
		before, there := 0, 0
		for _, name := range set.Files {
			if _, ok := l.stamp[name]; ok {
				before++
			}
			content, stamp, err := l.read(name)
			switch {
			case err != nil:
				delete(files, name)
				if _, ok := l.stamp[name]; ok || !errors.Is(err, fs.ErrNotExist) {
					l.log.Warn("a boot loader cannot be used", "file", filepath.Join(l.dir, name), "error", err)
				}
				continue
			case content != nil:
				files[name] = content
			}
			stamps[name] = stamp
			there++
		}
		if there == 0 && (before > 0 || l.stamp == nil) {
			l.log.Warn("no boot loader for this kind of firmware; such machines are not served", "firmware", set.Arch,
				"directory", l.dir, "files", strings.Join(set.Files, " or "), "hint", set.Remedy)
		}
	}
	l.stamp = stamps
	l.files.Store(&files)
}

// read returns a loader's content, nil if it is the one that is known already.
func (l *loaders) read(name string) ([]byte, loaderStamp, error) {
	path := filepath.Join(l.dir, name)
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, loaderStamp{}, err
	case !st.Mode().IsRegular() || st.Size() == 0 || st.Size() > maxLoader:
		return nil, loaderStamp{}, fmt.Errorf("it must be a file of 1 to %d bytes", maxLoader)
	}
	stamp := loaderStamp{st.Size(), st.ModTime()}
	if l.stamp[name] == stamp {
		return nil, stamp, nil
	}
	content, err := os.ReadFile(path)
	if err == nil && len(content) == 0 {
		err = errors.New("it is empty")
	}
	return content, stamp, err
}
