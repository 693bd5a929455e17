package lab

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestScreen(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	happenings := []Happening{
		{at, "m01", StageFirmware, "power on (BIOS), asks the network"},
		{at, "m02", StageFirmware, "power on (UEFI), asks the network"},
		{at, "m01", StageControl, "boot record sight by key:booter"},
		{at, "m01", StageEnroll, "announces itself: it has no pool 'zones'\x1b[2J"},
		{at, "", StageControl, "in another shell"},
	}
	tell := func(s *Screen) string {
		var b bytes.Buffer
		s.W = &b
		for _, h := range happenings {
			s.Tell(h)
		}
		return b.String()
	}
	plain := `12:00:00  m01     firmware  power on (BIOS), asks the network
12:00:00  m02     firmware  power on (UEFI), asks the network
12:00:00  m01     control   boot record sight by key:booter
12:00:00  m01     enroll    announces itself: it has no pool 'zones'·[2J
12:00:00  muster  control   in another shell
`
	if got := tell(&Screen{}); got != plain {
		t.Errorf("plain:\n%s", got)
	}
	got := tell(&Screen{Terminal: true, Rows: 10})
	if !strings.HasSuffix(got, "2 machines, 1 firmware, 1 enroll\n  m01     enroll    announces itself: it has no pool 'zones'·[2J\n  m02     firmware  power on (UEFI), asks the network\n") {
		t.Errorf("on a terminal:\n%q", got)
	}
	if n := strings.Count(got, "\x1b[3A\x1b[J") + strings.Count(got, "\x1b[4A\x1b[J"); n != 4 {
		t.Errorf("the rows were taken back %d times", n)
	}
	if got := tell(&Screen{Terminal: true, Rows: 1}); !strings.HasSuffix(got, "in another shell\n\n2 machines, 1 firmware, 1 enroll\n") {
		t.Errorf("rows that do not fit:\n%q", got)
	}
	if got := tell(&Screen{Colour: true}); !strings.Contains(got, "\x1b[33menroll  \x1b[0m") {
		t.Errorf("colours:\n%q", got)
	}
}
