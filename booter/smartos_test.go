package booter

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/image"
)

// A SmartOS machine is given what its script names, with hashes; in a rescue
// and to other machines nothing but the image is.
func TestSmartOSFiles(t *testing.T) {
	p := newPlane()
	linux := p.addImage("node-1", "kernel", "initrd")
	files := map[string]string{"unix": "\x7fELF", "boot_archive": "archive", "hash": "sum"}
	smart := muster.Image{Name: "smartos-1", Kind: muster.SmartOSImage, Variants: []muster.ImageVariant{{Arch: "amd64", Args: []string{"console=ttyb"}}}}
	for role, content := range files {
		d := image.DigestOf([]byte(content))
		smart.Variants[0].Files = append(smart.Variants[0].Files, muster.ImageFile{Role: role, Digest: d, Size: int64(len(content))})
		p.blobs[d] = []byte(content)
	}
	smart.Digest = image.Digest(smart)
	ref := &muster.ImageRef{Name: smart.Name, Digest: smart.Digest}
	p.do(func() {
		p.images[smart.Digest] = smart
		p.policy.Networks, p.policy.NodeConfig = adminNetwork(), map[string]string{"datacenter_name": "$(reboot)"}
	})
	p.set(enrolled(1, ref))
	p.set(enrolled(2, linux))
	rescued := enrolled(3, ref)
	until := time.Now().Add(time.Hour)
	rescued.Mode, rescued.RescueUntil = muster.RescueMode, &until
	p.set(rescued)
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref, linux)
	get := func(n int, path string) (int, string) {
		t.Helper()
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/boot/%s/%s", b.Ports().HTTP, strings.ReplaceAll(mac(n), ":", "-"), path))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	_, script := get(1, "script.ipxe")
	served := map[string]string{}
	for _, line := range strings.Split(script, "\n") {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "kernel" && words[0] != "module" {
			continue
		}
		_, path, _ := strings.Cut(words[1], strings.ReplaceAll(mac(1), ":", "-")+"/")
		status, body := get(1, path)
		if status != 200 {
			t.Errorf("the script names %s: %d %s", path, status, body)
		}
		served[path[strings.LastIndex(path, "/")+1:]] = body
	}
	for name, want := range map[string]string{"unix": "\x7fELF", "boot_archive": "archive", "boot_archive.hash": "sum",
		"networking.json.hash": string(boot.FileHash([]byte(served["networking.json"]))), "node.config.hash": string(boot.FileHash([]byte(served["node.config"])))} {
		if served[name] != want {
			t.Errorf("%s is %q, want %q", name, served[name], want)
		}
	}
	if len(served) != 7 || !strings.Contains(served["node.config"], "\ndatacenter_name='$(reboot)'\n") || !strings.Contains(served["networking.json"], mac(1)) {
		t.Errorf("%q", served)
	}
	for _, n := range []int{2, 3} {
		for _, path := range []string{"networking.json", "networking.json.hash", "node.config", "node.config.hash"} {
			if status, body := get(n, path); status != 404 || len(body) < 10 {
				t.Errorf("%s for machine %d: %d %s", path, n, status, body)
			}
		}
	}
}
