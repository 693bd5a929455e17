//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"muster.internal"
	"muster.internal/image"
)

// mac and address of the machine with this number.
func mac(n int) [6]byte {
	return [6]byte{0x02, 0x4d, 0x00, byte(n >> 16), byte(n >> 8), byte(n)}
}

func macText(n int) string {
	m := mac(n)
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

func address(n int) [4]byte {
	n += 16 << 16 // 10.16.0.0
	return [4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}
}

func addressText(n int) string {
	a := address(n)
	return fmt.Sprintf("%d.%d.%d.%d", a[0], a[1], a[2], a[3])
}

// booterWith is the booter as it is after a power loss: its control plane is
// away, and it serves the records and the image that it keeps on disk. That is
// the same path through memory as with a control plane, without the work of one.
func (b *bench) booterWith(name string, records int, loader, initrd []byte) (server, string, error) {
	dir := filepath.Join(b.dir, name)
	images, ipxe := filepath.Join(dir, "images"), filepath.Join(dir, "ipxe")
	for _, d := range []string{images, ipxe} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return server{}, "", err
		}
	}
	kernel := []byte("a kernel")
	i := muster.Image{Name: "bench", Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64", Files: []muster.ImageFile{
		{Role: "kernel", Digest: image.DigestOf(kernel), Size: int64(len(kernel))},
		{Role: "initrd", Digest: image.DigestOf(initrd), Size: int64(len(initrd))}}}}}
	i.Digest = image.Digest(i)
	blobs, err := image.OpenBlobs(filepath.Join(dir, "blobs"))
	if err != nil {
		return server{}, "", err
	}
	for _, content := range [][]byte{kernel, initrd} {
		if err := blobs.Put(image.DigestOf(content), int64(len(content)), bytes.NewReader(content)); err != nil {
			return server{}, "", err
		}
	}
	policy := muster.DefaultBootPolicy()
	policy.EnrollmentPI = &muster.ImageRef{Name: i.Name, Digest: i.Digest}
	policy.Networks = []muster.AdminNetwork{{Name: "bench", Prefix: "10.0.0.0/8", Start: addressText(0), End: addressText(1 << 20), Gateway: serverIP, Resolvers: []string{serverIP}}}
	feed := muster.BooterFeed{Seq: 1, Policy: &policy}
	for n := range records {
		feed.Records = append(feed.Records, muster.BootRecord{MAC: macText(n), State: muster.Enrolling, Mode: muster.NormalMode, Network: "bench", Address: addressText(n), Seq: 1})
	}
	for file, v := range map[string]any{"directory.json": feed, "images/" + strings.TrimPrefix(i.Digest, "sha256:") + ".json": i} {
		raw, err := json.Marshal(v)
		if err != nil {
			return server{}, "", err
		}
		if err := os.WriteFile(filepath.Join(dir, file), raw, 0o644); err != nil {
			return server{}, "", err
		}
	}
	for _, l := range []string{"undionly.kpxe", "snponly.efi"} {
		if err := os.WriteFile(filepath.Join(ipxe, l), loader, 0o644); err != nil {
			return server{}, "", err
		}
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("mus_bench_bench"), 0o600); err != nil {
		return server{}, "", err
	}
	program, err := filepath.Abs(b.booter)
	if err != nil {
		return server{}, "", err
	}
	file := "/boot/" + strings.ReplaceAll(macText(0), ":", "-") + "/file/" + strings.TrimPrefix(image.DigestOf(initrd), "sha256:")
	return server{name: name, args: []string{program, "--name", "bench", "--control", "https://127.0.0.1:9", "--ca", strings.Repeat("0", 64),
		"--key-file", key, "--enroll-key-file", key, "--dir", dir, "--ipxe", ipxe, "--interface", "s0", "--address", serverIP}}, file, nil
}

// bytesOf is content that compresses badly and is the same on every run.
func bytesOf(size int) []byte {
	out := make([]byte, 0, size+sha256.Size)
	for sum := sha256.Sum256([]byte("muster")); len(out) < size; sum = sha256.Sum256(sum[:]) {
		out = append(out, sum[:]...)
	}
	return out[:size]
}

func hashOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
