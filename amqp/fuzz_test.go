package amqp

import (
	"bytes"
	"testing"
)

// FuzzMethod holds that there is one spelling of everything: what is read is
// written back byte for byte.
func FuzzMethod(f *testing.F) {
	for _, m := range everyMethod() {
		b := AppendMethod(nil, 1, m)
		f.Add(b[7 : len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMethod(b)
		if err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("an error of type %T", err)
			}
			return
		}
		got := AppendMethod(nil, 1, m)
		if !bytes.Equal(got[7:len(got)-1], b) {
			t.Fatalf("%T: read %x, written %x", m, b, got[7:len(got)-1])
		}
	})
}

func FuzzHeader(f *testing.F) {
	b := AppendContent(nil, 1, JSON, nil, FrameMax)
	f.Add(b[7 : len(b)-1])
	b = AppendContent(nil, 1, Properties{Flags: 0xfffc, Headers: Table{{"a", int32(1)}}}, nil, FrameMax)
	f.Add(b[7 : len(b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		c := coder{writing: true}
		h.fields(&c)
		if !bytes.Equal(c.b, b) {
			t.Fatalf("read %x, written %x", b, c.b)
		}
	})
}

// FuzzSession throws bytes at a server that has let the client in. Whatever
// they are, the answer is well formed, the limits hold, and it makes no
// difference in which pieces they come.
func FuzzSession(f *testing.F) {
	f.Add([]byte(stockAgent("/")), uint16(7))
	f.Add([]byte(stockAgent("/")+publish(5, "ur.sysinfo.x.1", "{}")), uint16(1))
	f.Add([]byte(Header), uint16(3))
	var all []byte
	for _, m := range everyMethod() {
		all = AppendMethod(all, 1, m)
	}
	f.Add([]byte(stockAgent("/")+string(all)), uint16(100))
	for _, m := range everyMethod() {
		f.Add([]byte(stockAgent("/")+string(AppendMethod(nil, 2, m))), uint16(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		p := Policy{MaxBody: 1000, Login: func(u, w string) bool { return u == "guest" }}
		whole, cut := NewSession(p), NewSession(p)
		events := whole.Receive(b)
		whole.Deliver(Message{Exchange: "amq.topic", Key: "ur.execute.x.1", Body: []byte("{}")})
		var pieces []Event
		for rest := b; len(rest) > 0; {
			n := min(int(piece)+1, len(rest))
			pieces = append(pieces, cut.Receive(rest[:n])...)
			rest = rest[n:]
		}
		cut.Deliver(Message{Exchange: "amq.topic", Key: "ur.execute.x.1", Body: []byte("{}")})
		if len(events) != len(pieces) {
			t.Fatalf("%d events in one piece, %d in many", len(events), len(pieces))
		}
		if n := whole.Buffered(); n > FrameMax+8+1000*whole.policy.MaxChannels {
			t.Fatalf("%d bytes are held", n)
		}
		out := whole.Output()
		if !bytes.Equal(out, cut.Output()) {
			t.Fatal("the answer depends on the pieces")
		}
		for len(out) > 0 && !bytes.HasPrefix(out, []byte("AMQP")) {
			fr, n, err := ParseFrame(out, FrameMax-8)
			if err != nil || n == 0 {
				t.Fatalf("the answer is no frame: %v", err)
			}
			if fr.Type == FrameMethod {
				if _, err := ParseMethod(fr.Payload); err != nil {
					t.Fatal(err)
				}
			}
			out = out[n:]
		}
	})
}
