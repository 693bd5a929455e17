package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"muster.internal"
)

// chain makes n entries, one of them with characters that JSON may escape.
func chain(n int) (es []muster.AuditEntry) {
	prev := ""
	for i := range n {
		detail, _ := json.Marshal(map[string]any{"n": i, "reason": "a <b> & \u2028 c"})
		e := muster.AuditEntry{Seq: int64(i + 1), At: time.UnixMicro(1_770_000_000_123_456 + int64(i)).UTC(), Actor: "operator:admin", Action: "disable",
			Subject: fmt.Sprintf("registration/%d", i), Detail: detail, PrevHash: prev}
		e.Hash = Hash(e)
		prev = e.Hash
		es = append(es, e)
	}
	return es
}

func export(t *testing.T, es []muster.AuditEntry) string {
	t.Helper()
	var b strings.Builder
	for _, e := range es {
		line, err := Line(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
	}
	return b.String()
}

// rehashed gives the entry at i another actor, and a hash that fits it.
func rehashed(es []muster.AuditEntry, i int) []muster.AuditEntry {
	es = slices.Clone(es)
	es[i].Actor = "operator:mallory"
	es[i].Hash = Hash(es[i])
	return es
}

// TestVerifyFile: whatever is done to an export is found, and the first entry
// that it was done to is named; the two things that cannot be seen are here too.
func TestVerifyFile(t *testing.T) {
	es := chain(6)
	whole := export(t, es)
	lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")
	lines[5] += "\n"
	with := func(edit func(ls []string) []string) string { return strings.Join(edit(slices.Clone(lines)), "") }
	anew := func() string { // every entry from the third on is written anew
		fake := slices.Clone(es)
		fake[2].Actor = "operator:mallory"
		for i := 2; i < 6; i++ {
			fake[i].PrevHash = fake[i-1].Hash
			fake[i].Hash = Hash(fake[i])
		}
		return export(t, fake)
	}
	for _, c := range []struct {
		name     string
		file     string
		known    Known
		brokenAt int64 // 0 with a reason: no entry can be named
		reason   string
	}{
		{"whole", whole, Known{}, 0, ""},
		{"whole, with its head", whole, Known{Head: es[5].Hash}, 0, ""},
		{"longer than when the head was kept", whole, Known{Head: es[2].Hash}, 0, ""},
		{"two exports, one behind the other", export(t, es[:2]) + export(t, es[2:]), Known{}, 0, ""},
		{"an export after entry 2", export(t, es[2:]), Known{After: 2}, 0, ""},
		{"after entry 2, with its hash", export(t, es[2:]), Known{After: 2, Head: es[1].Hash}, 0, ""},

		{"a field changed", strings.Replace(whole, `registration/3`, `registration/9`, 1), Known{}, 4, "entry 4 is not what was written"},
		{"its time changed by a microsecond", strings.Replace(whole, `.123459Z`, `.123458Z`, 1), Known{}, 4, "entry 4 is not what was written"},
		{"changed and hashed anew", export(t, rehashed(es, 3)), Known{}, 5, "entry 5 does not follow entry 4"},
		{"the last changed and hashed anew", export(t, rehashed(es, 5)), Known{Head: es[5].Hash}, 0, "no entry up to 6, the last, has the hash"},
		{"the first removed", with(func(ls []string) []string { return ls[1:] }), Known{}, 1, "entry 1 is missing"},
		{"one removed", with(func(ls []string) []string { return slices.Delete(ls, 2, 3) }), Known{}, 3, "entry 3 is missing: entry 4 stands in its place"},
		{"one twice", with(func(ls []string) []string { return slices.Insert(ls, 2, ls[1]) }), Known{}, 3, "entry 2 stands where entry 3 should"},
		{"one put in", with(func(ls []string) []string {
			return slices.Insert(ls, 2, strings.Replace(ls[2], "disable", "expunge", 1))
		}), Known{}, 3, "entry 3 is not what was written"},
		{"two swapped", with(func(ls []string) []string { ls[1], ls[2] = ls[2], ls[1]; return ls }), Known{}, 2, "entry 2 is missing"},
		{"a field put in", strings.Replace(whole, `{"seq":4,`, `{"seq":4,"approved_by":"admin",`, 1), Known{}, 4, "line 4 is not as an export writes it"},
		{"a field twice", strings.Replace(whole, `{"seq":4,`, `{"seq":4,"actor":"operator:mallory",`, 1), Known{}, 4, "line 4 is not as an export writes it"},
		{"a time of another zone", strings.Replace(whole, `02:40:00.123456Z`, `03:40:00.123456+01:00`, 1), Known{}, 1, "line 1 is not as an export writes it"},
		{"an empty line", with(func(ls []string) []string { return slices.Insert(ls, 3, "\n") }), Known{}, 4, "line 4 is no entry"},
		{"not an export", "root:x:0:0:root:/root:/bin/bash\n", Known{}, 1, "line 1 is no entry"},
		{"empty", "", Known{}, 1, "the file holds no entry"},
		{"empty, after entry 6", "", Known{After: 6}, 7, "the file holds no entry"},
		{"not after what was said", export(t, es[2:]), Known{After: 3}, 4, "entry 3 stands where entry 4 should"},
		{"after entry 2, which had another hash", export(t, es[2:]), Known{After: 2, Head: es[0].Hash}, 0, "no entry up to 6"},

		{"cut in the middle of a line", whole[:len(whole)-9], Known{}, 6, "line 6 is cut off"},
		{"cut before the end of the last line", whole[:len(whole)-1], Known{}, 6, "line 6 is cut off"},
		{"lines cut off the end, by the head", export(t, es[:4]), Known{Head: es[5].Hash}, 0, "no entry up to 4, the last, has the hash"},
		{"lines cut off the end: not seen", export(t, es[:4]), Known{}, 0, ""},
		{"written anew from an entry on, by the head", anew(), Known{Head: es[5].Hash}, 0, "no entry up to 6, the last, has the hash"},
		{"written anew from an entry on: not seen", anew(), Known{}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := VerifyFile(iotest.OneByteReader(strings.NewReader(c.file)), c.known)
			if err != nil {
				t.Fatal(err)
			}
			if v.OK != (c.reason == "") || v.BrokenAt != c.brokenAt || !strings.HasPrefix(v.Reason, c.reason) {
				t.Errorf("%+v, want entry %d: %s", v, c.brokenAt, c.reason)
			}
			if v.BrokenAt > 0 && v.BrokenAt != v.VerifiedTo+1 {
				t.Errorf("entry %d is broken, and %d are proved", v.BrokenAt, v.VerifiedTo)
			}
			if v.OK && v.VerifiedFrom != c.known.After+1 {
				t.Errorf("proved from %d on", v.VerifiedFrom)
			}
		})
	}
}

// TestVerifyFileEveryByte: no byte of an export can be another.
func TestVerifyFileEveryByte(t *testing.T) {
	es := chain(3)
	whole := []byte(export(t, es))
	for i := range whole {
		for _, flip := range []byte{0x01, 0x20, 0x80} {
			b := bytes.Clone(whole)
			b[i] ^= flip
			if v, err := VerifyFile(bytes.NewReader(b), Known{Head: es[2].Hash}); err != nil || v.OK {
				t.Errorf("byte %d (%q) as %q is not found: %v", i, whole[i], b[i], err)
			}
		}
	}
	for n := range len(whole) {
		if v, err := VerifyFile(bytes.NewReader(whole[:n]), Known{Head: es[2].Hash}); err != nil || v.OK {
			t.Errorf("a cut after byte %d is not found: %v", n, err)
		}
	}
}

// TestVerifyFileUnreadable: what cannot be read is not said to be broken.
func TestVerifyFileUnreadable(t *testing.T) {
	away := errors.New("the disk is away")
	if _, err := VerifyFile(iotest.ErrReader(away), Known{}); !errors.Is(err, away) {
		t.Error(err)
	}
	if _, err := VerifyFile(strings.NewReader(strings.Repeat("x", maxLine+2)), Known{}); err == nil || !strings.Contains(err.Error(), "no export") {
		t.Error(err)
	}
}

func FuzzVerifyFile(f *testing.F) {
	for _, s := range []string{"", "{}\n", "null\n", `{"seq":1,"at":"2026-01-01T00:00:00Z"}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := VerifyFile(bytes.NewReader(b), Known{})
		if err == nil && v.OK == (v.Reason != "") {
			t.Errorf("%+v", v)
		}
	})
}
