// Package amqp speaks the subset of AMQP 0-9-1 that the boot bus needs, as
// values: bytes in, frames, methods and events out, and the other way round.
// Both directions are here, because the booter is a server and the host on a
// machine a client.
//
// It must never panic, whatever the bytes, and never hold more memory than its
// limits say: what it reads comes from a network segment that nobody trusts.
// It does no I/O, reads no clock and starts no goroutine.
//
// Section numbers in comments are those of the AMQP 0-9-1 specification.
package amqp

import (
	"encoding/binary"
	"fmt"
)

// Header opens a connection (section 4.2.2).
const Header = "AMQP\x00\x00\x09\x01"

// Frame types (section 4.2.3).
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8
)

const (
	frameEnd      = 0xce
	frameOverhead = 8 // type, channel, size, end
)

// FrameMax is the frame size that we negotiate, in bytes. Stock agents fill a
// body payload up to this size, so that the frame around it is 8 bytes larger:
// such frames are accepted, as RabbitMQ does.
const FrameMax = 131072

// minFrameMax is what every peer must accept (section 4.2.3).
const minFrameMax = 4096

// Reply codes (section 1.2 of the generated reference).
const (
	ReplySuccess       = 200
	ContentTooLarge    = 311
	ConnectionForced   = 320
	AccessRefused      = 403
	NotFound           = 404
	ResourceLocked     = 405
	PreconditionFailed = 406
	FrameError         = 501
	SyntaxError        = 502
	CommandInvalid     = 503
	ChannelError       = 504
	UnexpectedFrame    = 505
	ResourceError      = 506
	NotAllowed         = 530
	NotImplemented     = 540
	InternalError      = 541
)

// An Error ends a channel or a connection; Class and Method name the method
// that caused it, when one did.
type Error struct {
	Code   uint16
	Text   string
	Class  uint16
	Method uint16
	// Hard closes the whole connection even if the code alone would not.
	Hard bool
}

func (e *Error) Error() string { return fmt.Sprintf("AMQP %d: %s", e.Code, e.Text) }

// Soft tells whether the error closes only the channel (section 1.2: codes 3xx
// and 403 to 406, but for 320).
func (e *Error) Soft() bool {
	if e.Hard {
		return false
	}
	switch e.Code {
	case ContentTooLarge, 312, 313, AccessRefused, NotFound, ResourceLocked, PreconditionFailed:
		return true
	}
	return false
}

func errorf(code uint16, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// A Frame is the unit of transport. Payload may alias the buffer it was read
// from: it is good until the next call to the Splitter.
type Frame struct {
	Type    uint8
	Channel uint16
	Payload []byte
}

// AppendFrame writes f at the end of dst.
func AppendFrame(dst []byte, f Frame) []byte {
	dst = append(dst, f.Type)
	dst = binary.BigEndian.AppendUint16(dst, f.Channel)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Payload)))
	dst = append(dst, f.Payload...)
	return append(dst, frameEnd)
}

// ParseFrame reads the frame at the start of b and returns how long it is. A
// length of 0 without an error means that more bytes are needed. A payload
// larger than max is an error, known from the first seven bytes on.
func ParseFrame(b []byte, max int) (Frame, int, error) {
	if len(b) < 7 {
		return Frame{}, 0, nil
	}
	f := Frame{Type: b[0], Channel: binary.BigEndian.Uint16(b[1:])}
	size := binary.BigEndian.Uint32(b[3:])
	switch f.Type {
	case FrameMethod, FrameHeader, FrameBody, FrameHeartbeat:
	default:
		return Frame{}, 0, errorf(FrameError, "frame type %d", f.Type)
	}
	if uint64(size) > uint64(max) {
		return Frame{}, 0, errorf(FrameError, "a frame of %d bytes where at most %d are agreed", size, max)
	}
	n := int(size) + frameOverhead
	if len(b) < n {
		return Frame{}, 0, nil
	}
	if b[n-1] != frameEnd {
		return Frame{}, 0, errorf(FrameError, "a frame does not end in 0xce")
	}
	f.Payload = b[7 : n-1 : n-1]
	return f, n, nil
}

// A Splitter cuts a stream of bytes into frames. It holds at most one
// incomplete frame and what was pushed after it. The zero value expects frames
// of up to FrameMax bytes of payload.
type Splitter struct {
	Max int // largest payload; 0: FrameMax
	buf []byte
	off int
}

// Push adds bytes from the stream. Frames returned before become invalid.
func (s *Splitter) Push(b []byte) {
	switch {
	case s.off == len(s.buf):
		s.buf, s.off = s.buf[:0], 0
	case s.off > 0:
		s.buf, s.off = s.buf[:copy(s.buf, s.buf[s.off:])], 0
	}
	if cap(s.buf) > 2*frameOverhead+4096 && len(s.buf)+len(b) < 1024 {
		s.buf = append([]byte(nil), s.buf...) // a large frame is gone: let its memory go too
	}
	s.buf = append(s.buf, b...)
}

// Next returns the next complete frame, or false when more bytes are needed.
func (s *Splitter) Next() (Frame, bool, error) {
	max := s.Max
	if max == 0 {
		max = FrameMax
	}
	f, n, err := ParseFrame(s.buf[s.off:], max)
	if err != nil || n == 0 {
		return Frame{}, false, err
	}
	s.off += n
	return f, true, nil
}

// Buffered is how many bytes wait for the rest of their frame.
func (s *Splitter) Buffered() int { return len(s.buf) - s.off }

// AppendHeartbeat writes a heartbeat frame (section 4.2.7).
func AppendHeartbeat(dst []byte) []byte { return AppendFrame(dst, Frame{Type: FrameHeartbeat}) }
