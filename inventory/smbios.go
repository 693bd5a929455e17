package inventory

import (
	"encoding/binary"
	"strings"

	"muster.internal"
)

// Types of SMBIOS structures, and limits that no machine comes near.
const (
	smbiosBIOS    = 0
	smbiosSystem  = 1
	smbiosCPU     = 4
	smbiosMemory  = 17
	smbiosEnd     = 127
	maxStructures = 4096
	maxModules    = 512
)

// ParseSMBIOS reads what a firmware's table of structures says of a machine:
// firmware, product, processors, memory modules (DMTF DSP0134, 6.1 and 7). It
// takes what it can read and leaves out the rest: firmware is full of mistakes.
func ParseSMBIOS(table []byte) muster.Hardware {
	var h muster.Hardware
	for range maxStructures {
		if len(table) < 4 {
			break
		}
		length := int(table[1])
		if length < 4 || length > len(table) {
			break
		}
		s := structure{table[:length], nil}
		table = s.takeStrings(table[length:])
		switch s.fixed[0] {
		case smbiosBIOS:
			h.BIOS = muster.BIOS{Vendor: s.text(4), Version: s.text(5), Date: s.text(8)}
		case smbiosSystem:
			h.Vendor, h.Product, h.Serial = s.text(4), s.text(5), RealSerial(s.text(7))
		case smbiosCPU:
			if c, there := s.cpu(); there && len(h.CPUs) < maxModules {
				h.CPUs = append(h.CPUs, c)
			}
		case smbiosMemory:
			if d, there := s.dimm(); there && len(h.DIMMs) < maxModules {
				h.DIMMs = append(h.DIMMs, d)
			}
		case smbiosEnd:
			return h
		}
	}
	return h
}

// A structure has a fixed part, and strings that it counts from 1.
type structure struct {
	fixed []byte
	words []string
}

// takeStrings reads the strings after a fixed part, up to two zeros, and returns
// what follows them.
func (s *structure) takeStrings(b []byte) []byte {
	if len(b) >= 2 && b[0] == 0 && b[1] == 0 {
		return b[2:]
	}
	for len(b) > 0 && b[0] != 0 {
		word := b
		b = nil
		for i, c := range word {
			if c == 0 {
				word, b = word[:i], word[i+1:]
				break
			}
		}
		if len(s.words) < 256 {
			s.words = append(s.words, readable(word))
		}
	}
	if len(b) > 0 {
		b = b[1:]
	}
	return b
}

// readable is one short line of what firmware wrote; what stands for nothing
// is nothing.
func readable(b []byte) string {
	text := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, string(b[:min(len(b), 128)]))), " ")
	switch strings.ToLower(text) {
	case "not specified", "none", "unknown", "no dimm", "to be filled by o.e.m.", "default string":
		return ""
	}
	return text
}

func (s *structure) text(at int) string {
	if at >= len(s.fixed) {
		return ""
	}
	n := int(s.fixed[at])
	if n == 0 || n > len(s.words) {
		return ""
	}
	return s.words[n-1]
}

// number is the little-endian value of so many bytes; what is not there is 0.
func (s *structure) number(at, bytes int) int64 {
	if at+bytes > len(s.fixed) {
		return 0
	}
	var b [8]byte
	copy(b[:], s.fixed[at:at+bytes])
	return int64(binary.LittleEndian.Uint64(b[:]))
}

func (s *structure) cpu() (c muster.CPU, there bool) {
	const populated = 0x40
	if s.number(0x18, 1)&populated == 0 {
		return c, false
	}
	// Counts above 255 are in fields of their own.
	wide := func(narrow, wider int) int64 {
		if n := s.number(narrow, 1); n != 0xff {
			return n
		}
		return s.number(wider, 2)
	}
	return muster.CPU{Socket: s.text(4), Model: s.text(0x10), Cores: wide(0x23, 0x2a), Threads: wide(0x25, 0x2e)}, true
}

func (s *structure) dimm() (d muster.DIMM, there bool) {
	size := s.number(0x0c, 2)
	switch {
	case size == 0 || size == 0xffff: // an empty slot, or one of unknown content
		return d, false
	case size == 0x7fff:
		size = s.number(0x1c, 4) & 0x7fffffff
	case size&0x8000 != 0:
		size = size & 0x7fff >> 10 // it is in KiB
	}
	slot := s.text(0x10)
	if bank := s.text(0x11); bank != "" && !strings.Contains(slot, bank) {
		slot = strings.TrimSpace(bank + " " + slot)
	}
	return muster.DIMM{Slot: slot, SizeMiB: size, Vendor: s.text(0x17), Part: s.text(0x1a), Serial: RealSerial(s.text(0x18))}, true
}
