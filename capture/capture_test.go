package capture

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func pcap(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../dhcp/testdata/pcap/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFormats: the same frames read the same from pcap and from pcapng, with a
// VLAN tag too; a file that is cut off reads as far as it goes.
func TestFormats(t *testing.T) {
	raw := pcap(t, "gold-b-ovmf-pxe-snponly2025.pcap")
	plain, err := Read(bytes.NewReader(raw))
	if err != nil || len(plain.Frames) != 8 || plain.Fault != "" {
		t.Fatalf("%d frames, %v %s", len(plain.Frames), err, plain.Fault)
	}
	r, err := pcapgo.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var ng bytes.Buffer
	w, err := pcapgo.NewNgWriter(&ng, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, err := r.ReadPacketData()
		if err != nil {
			break
		}
		tagged := append(append(append([]byte{}, data[:12]...), 0x81, 0, 0, 42), data[12:]...)
		info.InterfaceIndex, info.CaptureLength, info.Length = 0, len(tagged), len(tagged)
		if err := w.WritePacket(gopacket.CaptureInfo(info), tagged); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	next, err := Read(&ng)
	if err != nil || len(next.Frames) != 8 {
		t.Fatalf("%d frames, %v", len(next.Frames), err)
	}
	for i, f := range next.Frames {
		p := plain.Frames[i]
		if !bytes.Equal(f.Payload, p.Payload) || f.Src != p.Src || len(f.VLANs) != 1 || f.VLANs[0] != 42 || f.At.Sub(p.At).Abs() > time.Microsecond {
			t.Errorf("frame %d differs: %v %v", i+1, f.Src, f.VLANs)
		}
	}
	cut, err := Read(bytes.NewReader(raw[:len(raw)-100]))
	if err != nil || len(cut.Frames) != 7 || !strings.Contains(cut.Fault, "breaks off") {
		t.Errorf("cut off: %d frames, %v, %q", len(cut.Frames), err, cut.Fault)
	}
	for _, b := range [][]byte{nil, []byte("x"), []byte("this is a letter, not a capture")} {
		if _, err := Read(bytes.NewReader(b)); err != ErrNotCapture {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// ng writes frames as pcapng.
func ng(t *testing.T, raw []byte) []byte {
	t.Helper()
	r, err := pcapgo.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, err := r.ReadPacketData()
		if err != nil {
			break
		}
		info.InterfaceIndex = 0
		if err := w.WritePacket(info, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCutAnywhere: a file that ends where no frame ends says so, whatever the
// byte; one that ends between two frames cannot.
func TestCutAnywhere(t *testing.T) {
	raw := pcap(t, "gold-b-ovmf-pxe-snponly2025.pcap")
	packed := ng(t, raw)
	ends := func(b []byte, at, size, within int) map[int]bool {
		all := map[int]bool{at: true}
		for at < len(b) {
			n := int(binary.LittleEndian.Uint32(b[at+within:]))
			if size > 0 { // what the length does not count
				n += size
			}
			at += n
			all[at] = true
		}
		return all
	}
	for name, c := range map[string]struct {
		file []byte
		ends map[int]bool
	}{
		"pcap":   {raw, ends(raw, 24, 16, 8)},
		"pcapng": {packed, ends(packed, 0, 0, 4)},
	} {
		if !c.ends[len(c.file)] || len(c.ends) < 8 {
			t.Fatalf("%s: the frames do not fill the file: %v of %d", name, c.ends, len(c.file))
		}
		for n := 32; n <= len(c.file); n++ {
			f, err := Read(bytes.NewReader(c.file[:n]))
			if err != nil && n > 100 {
				t.Fatalf("%s cut after byte %d: %v", name, n, err)
			}
			if err == nil && (f.Fault == "") != c.ends[n] {
				t.Errorf("%s cut after byte %d (an end: %v): fault %q after %d frames", name, n, c.ends[n], f.Fault, f.Total)
			}
		}
	}
}
