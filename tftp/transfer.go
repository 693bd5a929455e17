package tftp

import (
	"fmt"
	"time"
)

// Terms are what a transfer has agreed on.
type Terms struct {
	BlkSize int
	Window  int
	Timeout time.Duration
	// Options tells that the client asked for any option, so that the transfer
	// begins with an OACK.
	Options bool

	req Request
}

// Negotiate grants what a request asks for, as far as it fits: blocks that fit
// an Ethernet frame, windows that fit one segmented send.
func Negotiate(r Request) Terms {
	t := Terms{BlkSize: DefaultBlkSize, Window: 1, Timeout: DefaultTimeout, req: r}
	if r.BlkSize > 0 {
		t.BlkSize = min(r.BlkSize, MaxBlkSize)
	}
	if r.Window > 0 {
		t.Window = min(r.Window, MaxWindow, maxWindowBytes/(t.BlkSize+headerSize))
	}
	if r.Timeout > 0 {
		t.Timeout = time.Duration(r.Timeout) * time.Second
	}
	t.Options = r.BlkSize > 0 || r.Window > 0 || r.Timeout > 0 || r.TSize
	return t
}

// AppendOACK writes the OACK packet for a file of size bytes to dst: an option
// that was not asked for is not told.
func (t Terms) AppendOACK(dst []byte, size int64) []byte {
	dst = append(dst, 0, OpOACK)
	if t.req.TSize {
		dst = appendOption(dst, "tsize", size)
	}
	var blksize, window int
	if t.req.BlkSize > 0 {
		blksize = t.BlkSize
	}
	if t.req.Window > 0 {
		window = t.Window
	}
	return appendOptions(dst, blksize, window, t.req.Timeout)
}

// A Step is what a sender does next.
type Step struct {
	Do Do
	// First and Count are the blocks to send, the first block being 1.
	First int64
	Count int
}

// Do is a kind of step.
type Do byte

const (
	Wait   Do = iota // for an ACK, or for the time to run out
	Offer            // send the OACK
	Send             // send Count blocks from First
	Finish           // the client has everything
	GiveUp           // the client has gone
)

func (d Do) String() string { return [...]string{"wait", "offer", "send", "finish", "give up"}[d] }

// A Sender is the sending end of a transfer.
type Sender struct {
	terms  Terms
	blocks int64 // in all; the last is shorter than a block, maybe empty
	acked  int64 // blocks that have arrived, in order
	sent   int64 // the last block sent
	oack   bool  // the OACK is not acknowledged
	tries  int
}

// NewSender begins a transfer of size bytes.
func NewSender(size int64, t Terms) Sender {
	return Sender{terms: t, blocks: size/int64(t.BlkSize) + 1, oack: t.Options}
}

// Start is the first step.
func (s *Sender) Start() Step {
	if s.oack {
		return Step{Do: Offer}
	}
	return s.window()
}

// Ack takes in an ACK. A duplicate never leads to sending again: two ends that
// answer each other's duplicates double every packet to the end (the
// Sorcerer's Apprentice). Lost blocks are sent again when a later ACK shows
// the gap, or when time is up.
func (s *Sender) Ack(block uint16) Step {
	ahead := int64(block - uint16(s.acked)) // block numbers roll over at 65536
	switch {
	case s.oack && block == 0:
		s.oack, s.tries = false, 0
		return s.window()
	case s.oack || ahead == 0 || ahead > s.sent-s.acked:
		return Step{Do: Wait}
	}
	s.acked += ahead
	s.tries = 0
	if s.acked == s.blocks {
		return Step{Do: Finish}
	}
	return s.window()
}

// Timeout is the step when nothing came in time.
func (s *Sender) Timeout() Step {
	if s.tries++; s.tries > MaxTries {
		return Step{Do: GiveUp}
	}
	if s.oack {
		return Step{Do: Offer}
	}
	return s.window()
}

// maxPatience bounds what a client may ask for: it must not hold a transfer
// for an hour by saying nothing.
const maxPatience = 15 * time.Second

// Patience is how long to wait for the next ACK: longer with every try.
func (s *Sender) Patience() time.Duration {
	return min(s.terms.Timeout<<min(s.tries, 3), maxPatience)
}

func (s *Sender) window() Step {
	n := min(int64(s.terms.Window), s.blocks-s.acked)
	s.sent = s.acked + n
	return Step{Do: Send, First: s.acked + 1, Count: int(n)}
}

// AppendBlocks writes the DATA packets of a step, one after the other, to dst.
// All but the last of the file are of BlkSize+4 bytes.
func (t Terms) AppendBlocks(dst, content []byte, s Step) []byte {
	for n := s.First; n < s.First+int64(s.Count); n++ {
		from := (n - 1) * int64(t.BlkSize)
		to := min(from+int64(t.BlkSize), int64(len(content)))
		dst = AppendData(dst, uint16(n), content[from:to])
	}
	return dst
}

// SegmentSize is the length of every packet of AppendBlocks but the last.
func (t Terms) SegmentSize() int { return t.BlkSize + headerSize }

// A Receiver is the receiving end of a read.
type Receiver struct {
	blksize, window int
	max             int64
	Data            []byte
	Size            int64 // told by the server; below 0: not told
	Done            bool
	blocks          int64 // received in order
	since           int   // blocks since the last ACK
	started, told   bool
}

// NewReceiver takes in at most max bytes of what r asked for.
func NewReceiver(r Request, max int64) *Receiver {
	return &Receiver{blksize: DefaultBlkSize, window: 1, max: max, Size: -1}
}

// Receive takes in a packet and appends the answer, if any, to dst. An error
// ends the transfer.
func (r *Receiver) Receive(dst []byte, p Packet) ([]byte, error) {
	switch p.Op {
	case OpError:
		return dst, fmt.Errorf("tftp: server error %d: %s", p.Code, p.Text)
	case OpOACK:
		if r.started {
			return dst, nil
		}
		if p.BlkSize > 0 {
			r.blksize = p.BlkSize
		}
		if p.Window > 0 {
			r.window = p.Window
		}
		r.Size = p.TSize
		return AppendAck(dst, 0), nil
	case OpData:
		return r.data(dst, p)
	}
	return dst, ErrMalformed
}

func (r *Receiver) data(dst []byte, p Packet) ([]byte, error) {
	r.started = true
	if p.Block != uint16(r.blocks+1) {
		// A duplicate is acknowledged again, since the ACK may have been lost;
		// of a gap the sender is told once.
		gap := int16(p.Block-uint16(r.blocks)) > 0
		if gap && r.told {
			return dst, nil
		}
		r.told, r.since = gap, 0
		return AppendAck(dst, uint16(r.blocks)), nil
	}
	if len(p.Data) > r.blksize || int64(len(r.Data)+len(p.Data)) > r.max {
		return dst, fmt.Errorf("tftp: more data than agreed on")
	}
	r.Data = append(r.Data, p.Data...)
	r.blocks++
	r.since++
	r.told = false
	r.Done = len(p.Data) < r.blksize
	if r.Done || r.since >= r.window {
		r.since = 0
		return AppendAck(dst, uint16(r.blocks)), nil
	}
	return dst, nil
}

// Timeout appends what to send when nothing came in time: the last ACK again.
func (r *Receiver) Timeout(dst []byte) []byte {
	r.since, r.told = 0, false
	return AppendAck(dst, uint16(r.blocks))
}
