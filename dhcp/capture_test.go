package dhcp

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// A frame is one UDP datagram of a capture.
type frame struct {
	file             string
	srcPort, dstPort uint16
	payload          []byte
}

// captures reads the UDP datagrams of every capture in testdata: what real
// firmware sent, and what another server answered.
func captures(t testing.TB) []frame {
	t.Helper()
	files, err := filepath.Glob("testdata/pcap/*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	var fs []frame
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 || binary.LittleEndian.Uint32(b[20:]) != 1 {
			t.Fatalf("%s is not a little-endian Ethernet capture", name)
		}
		for b = b[24:]; len(b) >= 16; {
			n := int(binary.LittleEndian.Uint32(b[8:]))
			if f, ok := udp(b[16 : 16+n]); ok {
				f.file = filepath.Base(name)
				fs = append(fs, f)
			}
			b = b[16+n:]
		}
	}
	return fs
}

func udp(eth []byte) (frame, bool) {
	if len(eth) < 42 || binary.BigEndian.Uint16(eth[12:]) != 0x0800 {
		return frame{}, false
	}
	ip := eth[14:]
	head := int(ip[0]&15) * 4
	if ip[9] != 17 || len(ip) < head+8 {
		return frame{}, false
	}
	u := ip[head:]
	return frame{srcPort: binary.BigEndian.Uint16(u), dstPort: binary.BigEndian.Uint16(u[2:]),
		payload: u[8:binary.BigEndian.Uint16(u[4:])]}, true
}
