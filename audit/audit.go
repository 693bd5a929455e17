// Package audit is the chain of the audit: how an entry is hashed, how a walk
// along the entries finds the first that is not what was written, and the shape
// of an export, which proves itself without the control plane.
//
// It reads what it is handed and opens nothing.
package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"muster.internal"
)

// Hash computes an entry's hash: SHA-256 over a line that names the format,
// then every field with its length before it. It covers the stored bytes of
// Detail, which are never encoded anew.
func Hash(e muster.AuditEntry) string {
	h := sha256.New()
	h.Write([]byte("muster audit 1\n"))
	for _, f := range [][]byte{
		[]byte(e.PrevHash), number(e.Seq), number(e.At.UnixMicro()), []byte(e.Actor), []byte(e.Action), []byte(e.Subject), e.Detail,
	} {
		h.Write(number(int64(len(f))))
		h.Write(f)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Follow extends a verdict by the next entry, or ends it there.
func Follow(v *muster.AuditVerdict, e muster.AuditEntry) {
	want := v.VerifiedTo + 1
	switch {
	case e.Seq > want:
		v.Reason = fmt.Sprintf("entry %d is missing: entry %d stands in its place", want, e.Seq)
	case e.Seq < want:
		v.Reason = fmt.Sprintf("entry %d stands where entry %d should", e.Seq, want)
	case e.PrevHash != v.Head:
		v.Reason = fmt.Sprintf("entry %d does not follow entry %d: one of the two is not what was written", e.Seq, v.VerifiedTo)
	case Hash(e) != e.Hash:
		v.Reason = fmt.Sprintf("entry %d is not what was written", e.Seq)
	default:
		v.VerifiedTo, v.Head = e.Seq, e.Hash
		return
	}
	v.OK, v.BrokenAt = false, want
}

// Line is an entry as an export holds it, with its end of line.
func Line(e muster.AuditEntry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	return b.Bytes(), err
}

// A FileVerdict is what a walk along an export found.
type FileVerdict struct {
	muster.AuditVerdict
	VerifiedFrom int64 `json:"verified_from,omitempty"` // the first entry that is proved
	BrokenLine   int   `json:"broken_line,omitempty"`   // of the file
}

// Known is what is known of an export from elsewhere.
type Known struct {
	After int64  // it begins behind this entry
	Head  string // hash of an entry that must be in it, or of entry After; empty: none
}

// maxLine bounds a line: an entry's detail is a few KiB.
const maxLine = 16 << 20

// VerifyFile walks along an export, which proves its entries by themselves:
// what was changed, moved, put in or taken out before the last line is found.
// That lines are missing at the end shows only by k.Head, or when the cut went
// through a line. An error means that the file could not be read.
func VerifyFile(r io.Reader, k Known) (FileVerdict, error) {
	v := FileVerdict{AuditVerdict: muster.AuditVerdict{OK: true, VerifiedTo: k.After}}
	first, found := true, k.Head == ""
	for lines, n := bufio.NewReader(r), 1; v.OK; n++ {
		line, err := readLine(lines)
		if err == io.EOF {
			break
		}
		if err != nil {
			return v, err
		}
		e, err := parse(line)
		if err != nil {
			v.OK, v.BrokenAt, v.BrokenLine, v.Reason = false, v.VerifiedTo+1, n, fmt.Sprintf("line %d %v", n, err)
			break
		}
		if first && k.After > 0 && e.Seq == k.After+1 { // what it follows is taken from itself
			v.Head = e.PrevHash
			found = found || v.Head == k.Head
		}
		first = false
		if Follow(&v.AuditVerdict, e); !v.OK {
			v.BrokenLine = n
			break
		}
		v.VerifiedFrom = k.After + 1
		found = found || v.Head == k.Head
	}
	switch {
	case !v.OK:
	case first:
		v.OK, v.BrokenAt, v.Reason = false, k.After+1, "the file holds no entry"
	case !found:
		v.OK, v.Reason = false, fmt.Sprintf("no entry up to %d, the last, has the hash that was kept: the end was cut off, or all of it was written anew", v.VerifiedTo)
	}
	return v, nil
}

// readLine returns a line with its end, the last one as it is.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("a line is longer than %d bytes: this is no export of the audit", maxLine)
		case err == io.EOF && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// parse reads a line, which must be to the byte what an export writes: what a
// hash does not cover, such as a field put in, must not slip through.
func parse(line []byte) (muster.AuditEntry, error) {
	var e muster.AuditEntry
	if !bytes.HasSuffix(line, []byte("\n")) {
		return e, errors.New("is cut off")
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("is no entry: %w", err)
	}
	e.At = time.UnixMicro(e.At.UnixMicro()).UTC()
	if same, err := Line(e); err != nil || !bytes.Equal(same, line) {
		return e, errors.New("is not as an export writes it")
	}
	return e, nil
}
