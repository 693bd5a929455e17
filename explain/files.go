package explain

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"muster.internal/boot"
	"muster.internal/capture"
	"muster.internal/dhcp"
	"muster.internal/tftp"
)

// What a capture shows of files: TFTP and HTTP.

func (w *wiring) tftpRequest(f *capture.Frame) {
	r, err := tftp.ParseRequest(f.Payload)
	if err != nil {
		w.fault(f, "TFTP", fmt.Sprintf("%v (%v to %v)", err, f.Src, f.Dst))
		return
	}
	mac := w.owner(f.Src, f.SrcMAC)
	a := w.attempt(mac, f.At)
	l := Line{Frame: f.Number, At: f.At, Via: "TFTP", VLANs: f.VLANs, payload: f.Payload}
	l.Text = fmt.Sprintf("reads %s from %s", plain([]byte(r.Name), 128), f.Dst.Addr())
	if r.Write {
		l.Text = fmt.Sprintf("wants to write %s to %s", plain([]byte(r.Name), 128), f.Dst.Addr())
	}
	if dir, file, ok := strings.Cut(strings.TrimLeft(r.Name, "/"), "/"); ok {
		if m, err := dhcp.ParseMAC(dir); err == nil {
			stage := boot.Loader
			if file == "autoexec.ipxe" {
				stage = boot.Autoexec
			}
			l.Verdict = w.decide(m.String(), boot.TFTP, stage)
		}
	}
	if old := w.transfers[f.Src]; old != nil {
		old.count()
	}
	w.transfers[f.Src] = &transfer{a: a, line: a.say(l), server: f.Dst.Addr()}
}

// tftpData counts what belongs to a transfer; false: it belongs to none.
func (w *wiring) tftpData(f *capture.Frame) bool {
	client, server := f.Dst, f.Src
	t := w.transfers[client]
	if t == nil || t.server != server.Addr() {
		client, server = f.Src, f.Dst
		if t = w.transfers[client]; t == nil || t.server != server.Addr() {
			return false
		}
	}
	if len(f.Payload) < 4 {
		w.fault(f, "TFTP", "a packet of a transfer is too short")
		return true
	}
	switch op := f.Payload[1]; {
	case op == tftp.OpData:
		t.blocks++
		t.bytes += len(f.Payload) - 4
	case op == tftp.OpError:
		l := Line{Frame: f.Number, At: f.At, Via: "TFTP", VLANs: f.VLANs, payload: f.Payload}
		text, _, _ := bytes.Cut(f.Payload[4:], []byte{0})
		l.Text = fmt.Sprintf("error %d: %s", f.Payload[3], plain(text, 100))
		if client == f.Dst {
			l.Server = t.server.String()
		}
		t.count()
		t.a.To = f.At
		t.a.say(l)
	}
	return true
}

// count writes down how much of a file went over.
func (t *transfer) count() {
	if t.ended {
		return
	}
	t.ended = true
	if t.blocks > 0 {
		t.a.Lines[t.line].Text += fmt.Sprintf(": %d blocks, %d bytes", t.blocks, t.bytes)
	}
}

// http notes requests and the first lines of answers; false: it is neither.
func (w *wiring) http(f *capture.Frame) bool {
	line, _, ok := bytes.Cut(f.Payload[:min(len(f.Payload), 2048)], []byte("\r\n"))
	if !ok {
		return false
	}
	words := strings.Fields(plain(line, 1024))
	l := Line{Frame: f.Number, At: f.At, Via: "HTTP", VLANs: f.VLANs, payload: f.Payload}
	switch {
	case len(words) >= 2 && strings.HasPrefix(words[0], "HTTP/1."):
		mac := w.owners[f.Dst.Addr()]
		if mac == "" || w.current[mac] == nil {
			return false
		}
		l.Server, l.Text = f.Src.Addr().String(), strings.Join(words[1:], " ")
		w.attempt(mac, f.At).say(l)
		return true
	case len(words) == 3 && (words[0] == "GET" || words[0] == "HEAD") && strings.HasPrefix(words[2], "HTTP/1."):
		mac := w.owner(f.Src, f.SrcMAC)
		path, _, _ := strings.Cut(words[1], "?") // a query may say what is nobody's business
		l.Text = fmt.Sprintf("%s %s from %s", words[0], path, hostOf(f.Dst))
		if m, stage, ok := bootPath(path); ok {
			mac = m
			l.Verdict = w.decide(m, boot.HTTP, stage)
		}
		w.owners[f.Src.Addr()] = mac
		w.attempt(mac, f.At).say(l)
		return true
	}
	return false
}

// bootPath reads a path of ours.
func bootPath(path string) (mac string, stage boot.Stage, ok bool) {
	rest, ok := strings.CutPrefix(path, "/boot/")
	dir, file, ok2 := strings.Cut(rest, "/")
	m, err := dhcp.ParseMAC(dir)
	if !ok || !ok2 || err != nil {
		return "", 0, false
	}
	switch file {
	case "start.ipxe":
		return m.String(), boot.Start, true
	case "script.ipxe":
		return m.String(), boot.Script, true
	}
	return m.String(), boot.File, true
}

// hostOf is a server as people write it.
func hostOf(dst netip.AddrPort) string {
	if dst.Port() == 80 {
		return dst.Addr().String()
	}
	return dst.String()
}
