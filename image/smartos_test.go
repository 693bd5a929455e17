package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal"
)

const fakeArchive = "a boot archive, as far as this test is concerned"

func fakePlatform() map[string]string {
	sum := sha1.Sum([]byte(fakeArchive))
	return map[string]string{
		"platform-20190228T233723Z/i86pc/kernel/amd64/unix":             "\x7fELF and more",
		"platform-20190228T233723Z/i86pc/amd64/boot_archive":            fakeArchive,
		"platform-20190228T233723Z/i86pc/amd64/boot_archive.hash":       hex.EncodeToString(sum[:]) + "\n",
		"platform-20190228T233723Z/i86pc/amd64/boot_archive.gitstatus":  "[]",
		"platform-20190228T233723Z/i86pc/amd64/boot_archive.manifest":   "f etc 0755",
		"platform-20190228T233723Z/etc/version/platform":                "x",
		"platform-20190228T233723Z/i86pc/kernel/amd64/not/the/unix.txt": "x",
	}
}

func asTree(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func asTar(t *testing.T, files map[string]string, pack bool) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		w.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
		w.Write([]byte(content))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if pack {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		g.Write(b.Bytes())
		g.Close()
		b = z
	}
	file := filepath.Join(t.TempDir(), "platform.tgz")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A platform is the same image, whatever it travels in.
func TestImportPlatform(t *testing.T) {
	var digests []string
	for _, from := range []string{asTree(t, fakePlatform()), filepath.Join(asTree(t, fakePlatform()), "platform-20190228T233723Z"), asTar(t, fakePlatform(), false), asTar(t, fakePlatform(), true)} {
		out := t.TempDir()
		i, err := ImportPlatform(Platform{From: from, Out: out, Args: []string{"console=ttyb"}})
		if err != nil {
			t.Fatal(err)
		}
		again, blobs, err := ReadDir(out)
		if err != nil || again.Digest != i.Digest || again.Kind != muster.SmartOSImage || len(again.Variants[0].Files) != 3 {
			t.Errorf("%+v, %v", again, err)
		}
		for _, f := range Files(again) {
			if err := blobs.Check(f.Digest); err != nil {
				t.Error(err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(out, blobsName, partial+"*")); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
		again.Name = "" // the directory alone may not know its stamp
		digests = append(digests, Digest(again))
		if i.Name != "smartos-20190228T233723Z" {
			t.Errorf("%s: name %s", from, i.Name)
		}
		if _, err := ImportPlatform(Platform{From: from, Out: out}); err == nil || !strings.Contains(err.Error(), "holds an image already") {
			t.Errorf("over another: %v", err)
		}
	}
	for _, d := range digests {
		if d != digests[0] {
			t.Errorf("%v differ", digests)
		}
	}
}

func TestImportPlatformRefuses(t *testing.T) {
	const top = "platform-20190228T233723Z/"
	for name, c := range map[string]struct {
		change func(map[string]string)
		args   []string
		want   string
	}{
		"no kernel":      {func(m map[string]string) { delete(m, top+"i86pc/kernel/amd64/unix") }, nil, "holds no i86pc/kernel/amd64/unix"},
		"no archive":     {func(m map[string]string) { delete(m, top+"i86pc/amd64/boot_archive") }, nil, "holds no i86pc/amd64/boot_archive"},
		"damaged":        {func(m map[string]string) { m[top+"i86pc/amd64/boot_archive"] += "x" }, nil, "is damaged"},
		"odd hash":       {func(m map[string]string) { m[top+"i86pc/amd64/boot_archive.hash"] = "none" }, nil, "not a SHA-1"},
		"no program":     {func(m map[string]string) { m[top+"i86pc/kernel/amd64/unix"] = "#!/bin/sh" }, nil, "not a kernel"},
		"empty":          {func(m map[string]string) { m[top+"i86pc/amd64/boot_archive"] = "" }, nil, "is empty"},
		"two":            {func(m map[string]string) { m["other/i86pc/amd64/boot_archive"] = "x" }, nil, "twice"},
		"destroys pools": {func(map[string]string) {}, []string{"Destroy-Zpools=1"}, "destroy or import pools"},
		"two words":      {func(map[string]string) {}, []string{"a=b c"}, "cannot"},
	} {
		files := fakePlatform()
		c.change(files)
		for _, from := range []string{asTree(t, files), asTar(t, files, true)} {
			out := t.TempDir()
			_, err := ImportPlatform(Platform{From: from, Out: out, Args: c.args})
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "is not a kernel argument that a boot script can carry", "cannot"), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if _, err := os.Stat(filepath.Join(out, manifestName)); err == nil {
				t.Errorf("%s: an image is there all the same", name)
			}
		}
	}
	for _, from := range []string{"/no/such", asTar(t, map[string]string{}, false)} {
		if _, err := ImportPlatform(Platform{From: from, Out: t.TempDir()}); err == nil {
			t.Errorf("%s is no platform", from)
		}
	}
	link := t.TempDir()
	os.MkdirAll(filepath.Join(link, "i86pc/kernel/amd64"), 0o755)
	os.Symlink("/etc/passwd", filepath.Join(link, "i86pc/kernel/amd64/unix"))
	if _, err := ImportPlatform(Platform{From: link, Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "not a plain file") {
		t.Errorf("a link: %v", err)
	}
	whole, _ := os.ReadFile(asTar(t, fakePlatform(), true))
	cut := filepath.Join(t.TempDir(), "cut.tgz")
	os.WriteFile(cut, whole[:len(whole)/2], 0o644)
	if _, err := ImportPlatform(Platform{From: cut, Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("half a download: %v", err)
	}
}
