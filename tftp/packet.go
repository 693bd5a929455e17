// Package tftp is the TFTP protocol (RFC 1350) with its options (RFC 2347,
// 2348, 2349, 7440): a codec, the negotiation, and both ends of a transfer as
// state machines.
//
// It opens no socket and no file and reads no clock: a shell tells it what came
// and when time is up, and sends what it says.
package tftp

import (
	"encoding/binary"
	"errors"
	"strconv"
	"time"
)

// Opcodes (RFC 1350 §5, RFC 2347).
const (
	OpRead  = 1
	OpWrite = 2
	OpData  = 3
	OpAck   = 4
	OpError = 5
	OpOACK  = 6
)

// Error codes (RFC 1350 appendix, RFC 2347).
const (
	CodeUndefined   = 0
	CodeNotFound    = 1
	CodeAccess      = 2
	CodeIllegal     = 4
	CodeUnknownID   = 5
	CodeBadOption   = 8 // EDK2 sends it after an OACK that it only wanted the size from
	maxRequest      = 512
	headerSize      = 4
	DefaultBlkSize  = 512
	MaxBlkSize      = 1468 // what fits an Ethernet frame
	MaxWindow       = 64   // segments that the kernel sends in one call
	maxWindowBytes  = 65507
	DefaultTimeout  = time.Second
	MaxTries        = 6
	maxOptionDigits = 10
)

// Errors of the parsers.
var (
	ErrMalformed = errors.New("tftp: malformed packet")
	ErrTooLong   = errors.New("tftp: request longer than 512 bytes")
)

// A Request asks to read a file, or to write one. Zero options are absent.
type Request struct {
	Write   bool
	Name    string
	Mode    string
	BlkSize int
	Window  int
	Timeout int // seconds
	TSize   bool
}

// ParseRequest reads an RRQ or WRQ. Options that are unknown, or whose value
// makes no sense, are ignored as RFC 2347 wants it.
func ParseRequest(b []byte) (Request, error) {
	var r Request
	if len(b) > maxRequest {
		return r, ErrTooLong
	}
	if len(b) < 2 {
		return r, ErrMalformed
	}
	switch binary.BigEndian.Uint16(b) {
	case OpRead:
	case OpWrite:
		r.Write = true
	default:
		return r, ErrMalformed
	}
	name, rest, ok1 := cut(b[2:])
	mode, rest, ok2 := cut(rest)
	if !ok1 || !ok2 || len(name) == 0 {
		return r, ErrMalformed
	}
	r.Name, r.Mode = string(name), string(mode)
	for len(rest) > 0 {
		key, more, ok1 := cut(rest)
		value, more, ok2 := cut(more)
		if !ok1 || !ok2 {
			return r, ErrMalformed
		}
		r.option(key, value)
		rest = more
	}
	return r, nil
}

func (r *Request) option(key, value []byte) {
	n, ok := number(value)
	switch {
	case equalFold(key, "blksize") && ok && n >= 8 && n <= 65464 && r.BlkSize == 0:
		r.BlkSize = n
	case equalFold(key, "windowsize") && ok && n >= 1 && n <= 65535 && r.Window == 0:
		r.Window = n
	case equalFold(key, "timeout") && ok && n >= 1 && n <= 255 && r.Timeout == 0:
		r.Timeout = n
	case equalFold(key, "tsize") && ok:
		r.TSize = true
	}
}

// AppendRequest writes a request to dst.
func AppendRequest(dst []byte, r Request) []byte {
	op := byte(OpRead)
	if r.Write {
		op = OpWrite
	}
	dst = append(dst, 0, op)
	dst = append(append(dst, r.Name...), 0)
	dst = append(append(dst, r.Mode...), 0)
	if r.TSize {
		dst = appendOption(dst, "tsize", 0)
	}
	return appendOptions(dst, r.BlkSize, r.Window, r.Timeout)
}

func appendOptions(dst []byte, blksize, window, timeout int) []byte {
	if blksize > 0 {
		dst = appendOption(dst, "blksize", int64(blksize))
	}
	if window > 0 {
		dst = appendOption(dst, "windowsize", int64(window))
	}
	if timeout > 0 {
		dst = appendOption(dst, "timeout", int64(timeout))
	}
	return dst
}

func appendOption(dst []byte, key string, value int64) []byte {
	dst = append(append(dst, key...), 0)
	return append(strconv.AppendInt(dst, value, 10), 0)
}

// A Packet is anything but a request.
type Packet struct {
	Op    uint16
	Block uint16 // DATA, ACK
	Data  []byte // DATA: a view into the datagram
	Code  uint16 // ERROR
	Text  string // ERROR
	// OACK: what was granted; TSize is below 0 when it was not told.
	BlkSize, Window int
	TSize           int64
}

// Parse reads a DATA, ACK, ERROR or OACK packet.
func Parse(b []byte) (Packet, error) {
	p := Packet{TSize: -1}
	if len(b) < headerSize {
		return p, ErrMalformed
	}
	p.Op = binary.BigEndian.Uint16(b)
	switch p.Op {
	case OpData:
		p.Block, p.Data = binary.BigEndian.Uint16(b[2:]), b[headerSize:]
	case OpAck:
		p.Block = binary.BigEndian.Uint16(b[2:])
	case OpError:
		p.Code = binary.BigEndian.Uint16(b[2:])
		text, _, ok := cut(b[headerSize:])
		if !ok {
			text = b[headerSize:] // some clients leave the NUL out
		}
		p.Text = string(text)
	case OpOACK:
		return p, p.options(b[2:])
	default:
		return p, ErrMalformed
	}
	return p, nil
}

func (p *Packet) options(rest []byte) error {
	for len(rest) > 0 {
		key, more, ok1 := cut(rest)
		value, more, ok2 := cut(more)
		if !ok1 || !ok2 {
			return ErrMalformed
		}
		n, ok := number(value)
		switch {
		case !ok:
		case equalFold(key, "blksize"):
			p.BlkSize = n
		case equalFold(key, "windowsize"):
			p.Window = n
		case equalFold(key, "tsize"):
			p.TSize = int64(n)
		}
		rest = more
	}
	return nil
}

// AppendData writes a DATA packet to dst.
func AppendData(dst []byte, block uint16, data []byte) []byte {
	dst = append(dst, 0, OpData, byte(block>>8), byte(block))
	return append(dst, data...)
}

// AppendAck writes an ACK packet to dst.
func AppendAck(dst []byte, block uint16) []byte {
	return append(dst, 0, OpAck, byte(block>>8), byte(block))
}

// AppendError writes an ERROR packet to dst.
func AppendError(dst []byte, code uint16, text string) []byte {
	dst = append(dst, 0, OpError, byte(code>>8), byte(code))
	return append(append(dst, text...), 0)
}

// cut takes a NUL-terminated string off b.
func cut(b []byte) (s, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return b[:i], b[i+1:], true
		}
	}
	return nil, nil, false
}

func number(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > maxOptionDigits {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
