package booter

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster.internal/boot"
	"muster.internal/dhcp"
	"muster.internal/tftp"
	"muster.internal/udp"
)

const (
	maxTransfers  = 2048
	autoexec      = "autoexec.ipxe"
	segmentsAbove = 1 // blocks in a window, for one segmented send
)

// serveTFTP takes requests until the socket is closed. Each transfer has its
// own connected socket, so that the kernel drops what others send to it.
func (b *Booter) serveTFTP(ctx context.Context) error {
	t := &transfers{b: b, max: maxTransfers, active: map[netip.AddrPort]*transfer{}}
	defer t.work.Wait()
	in, oob := make([]byte, 2048), make([]byte, 128)
	for {
		n, _, _, src, err := b.tftp.ReadMsgUDPAddrPort(in, oob)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if passingRead(err) {
				continue
			}
			return err
		}
		if code, text := t.request(ctx, in[:n], src); text != "" {
			b.tftp.WriteToUDPAddrPort(tftp.AppendError(nil, code, text), src)
		}
	}
}

// passingRead tells whether reading may go on after an error; it rests a
// little, so that a broken socket does not eat a processor.
func passingRead(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	time.Sleep(10 * time.Millisecond)
	return true
}

// transfers are the ones going on.
type transfers struct {
	b      *Booter
	max    int // at once
	mu     sync.Mutex
	active map[netip.AddrPort]*transfer
	work   sync.WaitGroup
}

type transfer struct {
	request string
	conn    *net.UDPConn
	moved   atomic.Int64 // when the client last showed that it is there, by Unix nanoseconds
}

// touch notes that the client is there.
func (t *transfer) touch() { t.moved.Store(time.Now().UnixNano()) }

// request begins a transfer, or returns an error to tell. What is not a
// request is never answered: errors must not answer errors.
func (t *transfers) request(ctx context.Context, raw []byte, src netip.AddrPort) (code uint16, text string) {
	b := t.b
	r, err := tftp.ParseRequest(raw)
	if err != nil {
		b.tally.add(countBadRequests)
		return 0, ""
	}
	if r.Write {
		b.tally.add(countBadRequests)
		return tftp.CodeAccess, "nothing can be written here"
	}
	if !strings.EqualFold(r.Mode, "octet") {
		b.tally.add(countBadRequests)
		return tftp.CodeUndefined, "only mode octet is served; clients call it binary"
	}
	content, d := b.tftpFile(r.Name)
	if content == nil {
		b.tally.add(countBadRequests)
		return tftp.CodeNotFound, "no such file; names are MAC-WITH-HYPHENS/LOADER"
	}
	if !d.Serve {
		b.quiet.note(boot.TFTP, &d, b.now())
		b.traces.request(boot.TFTP, fileOf(r.Name), &d, src, int64(len(content)), b.now())
		return tftp.CodeNotFound, "not served: " + d.Reason.String()
	}
	tr := t.open(raw, src)
	if tr == nil {
		return 0, ""
	}
	b.log.Debug("loader asked for", "mac", d.MAC.String(), "file", r.Name, "blksize", r.BlkSize, "window", r.Window)
	b.tally.add(countTransfers)
	trace := b.traces.request(boot.TFTP, fileOf(r.Name), &d, src, int64(len(content)), b.now())
	t.work.Go(func() {
		stop := context.AfterFunc(ctx, func() { tr.conn.Close() })
		defer stop()
		defer t.close(src, tr)
		ended := send(tr.conn, content, r, tr.touch)
		b.tally.add(ended)
		b.traces.done(trace, transferOutcomes[ended], 0, b.now())
		if ended == countTransfersDone && d.Stage == boot.Loader {
			b.stepped(&d, 0, b.now())
		}
	})
	return 0, ""
}

// tftpFile finds what a name stands for; a nil content means that no machine
// has such a file.
func (b *Booter) tftpFile(name string) ([]byte, boot.Decision) {
	dir, file, ok := strings.Cut(strings.TrimLeft(name, "/"), "/")
	m, err := dhcp.ParseMAC(dir)
	if !ok || err != nil {
		return nil, boot.Decision{}
	}
	if file == autoexec {
		d, _ := b.decide(boot.Request{Via: boot.TFTP, MAC: m, Want: boot.Autoexec})
		return []byte{}, d
	}
	if !boot.IsLoader(file) {
		return nil, boot.Decision{MAC: m}
	}
	return b.loader(boot.TFTP, m, file)
}

// loader decides on a loader file by name, over any protocol. The content is
// empty when there is nothing to serve.
func (b *Booter) loader(via boot.Via, m dhcp.MAC, file string) ([]byte, boot.Decision) {
	d, _ := b.decide(boot.Request{Via: via, MAC: m, Want: boot.Loader})
	d.Loader = file
	content := b.loaders.get(file)
	if len(content) == 0 {
		if d.Serve {
			d = d.Deny(boot.LoaderMissing)
		}
		return []byte{}, d
	}
	return content, d
}

// fileOf is what a request's name asks for, without the machine's directory.
func fileOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// transferOutcomes are how a transfer's end is told.
var transferOutcomes = map[count]string{countTransfersDone: "done", countTransfersAborted: "aborted", countTransfersLost: "lost"}

// open makes the socket of a transfer; nil: there is one already that answers
// this very request. A client that asks for something else from the same port
// has given the old transfer up. When there are too many, the one whose client
// was not heard for the longest time makes room: those who ask and then say
// nothing, or who never were where the request said, must not keep others out.
func (t *transfers) open(raw []byte, src netip.AddrPort) *transfer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.active[src]; old != nil {
		if old.request == string(raw) {
			t.b.tally.add(countTransfersDoubled)
			return nil
		}
		old.conn.Close()
	} else if len(t.active) >= t.max {
		t.b.tally.add(countTransfersBusy)
		t.makeRoom()
	}
	conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.b.cfg.Address, 0)), net.UDPAddrFromAddrPort(src))
	if err != nil {
		t.b.log.Warn("no socket for a TFTP transfer", "to", src.String(), "error", err)
		return nil
	}
	tr := &transfer{request: string(raw), conn: conn}
	tr.touch()
	t.active[src] = tr
	return tr
}

// makeRoom ends the transfer that has not moved for the longest time; t.mu is
// held.
func (t *transfers) makeRoom() {
	var at netip.AddrPort
	var oldest *transfer
	for src, tr := range t.active {
		if oldest == nil || tr.moved.Load() < oldest.moved.Load() {
			at, oldest = src, tr
		}
	}
	if oldest != nil {
		oldest.conn.Close()
		delete(t.active, at)
	}
}

func (t *transfers) close(src netip.AddrPort, tr *transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr.conn.Close()
	if t.active[src] == tr {
		delete(t.active, src)
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<16); return &b }}

// send is the shell around a tftp.Sender. It returns how the transfer ended,
// and calls moved whenever the client has more than before.
func send(conn *net.UDPConn, content []byte, r tftp.Request, moved func()) count {
	terms := tftp.Negotiate(r)
	quick, err := udp.NewConn(conn)
	if err != nil {
		return countTransfersLost
	}
	w := &windowWriter{conn: conn, quick: quick, size: terms.SegmentSize(), segmented: terms.Window > segmentsAbove}
	if w.segmented && segment(conn, w.size) != nil {
		w.segmented = false
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	in := make([]byte, 600)
	s := tftp.NewSender(int64(len(content)), terms)
	for step := s.Start(); ; {
		switch step.Do {
		case tftp.Finish:
			return countTransfersDone
		case tftp.GiveUp:
			return countTransfersLost
		case tftp.Offer:
			*buf = terms.AppendOACK((*buf)[:0], int64(len(content)))
		case tftp.Send:
			*buf = terms.AppendBlocks((*buf)[:0], content, step)
		}
		if step.Do != tftp.Wait {
			if w.write(*buf) != nil {
				return countTransfersLost
			}
			conn.SetReadDeadline(time.Now().Add(s.Patience()))
		}
		n, err := quick.Read(in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			step = s.Timeout()
			continue
		case err != nil:
			return countTransfersLost
		}
		p, err := tftp.Parse(in[:n])
		step = tftp.Step{}
		switch {
		case err != nil:
		case p.Op == tftp.OpError: // EDK2 only wanted the size, and says so like this
			return countTransfersAborted
		case p.Op == tftp.OpAck:
			if step = s.Ack(p.Block); step.Do != tftp.Wait {
				moved()
			}
		}
	}
}

// A windowWriter sends the packets of a window, in one call if the kernel can.
type windowWriter struct {
	conn      *net.UDPConn
	quick     *udp.Conn // the same
	size      int       // of each packet but the last
	segmented bool
}

func (w *windowWriter) write(b []byte) error {
	if w.segmented || len(b) <= w.size {
		err := w.quick.Write(b)
		if err == nil || !w.segmented || len(b) <= w.size {
			return err
		}
		// This interface cannot: send one by one, now and from here on.
		w.segmented = false
		if err := segment(w.conn, 0); err != nil {
			return err
		}
	}
	for len(b) > 0 {
		n := min(w.size, len(b))
		if err := w.quick.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
