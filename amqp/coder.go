package amqp

import (
	"encoding/binary"
	"math"
)

// A coder reads or writes the fields of a method, so that each method is
// described once and cannot be read otherwise than it is written. It accepts
// exactly one spelling of each value: what was read is written back byte for
// byte.
type coder struct {
	b       []byte // reading: what is left; writing: what was written
	writing bool
	err     *Error
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = errorf(SyntaxError, "%s", what)
	}
	c.b = nil
}

// take returns the next n bytes, or nil after the end.
func (c *coder) take(n int) []byte {
	if c.err != nil || n < 0 || len(c.b) < n {
		c.fail("a field goes beyond the end of its frame")
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *coder) octet(v *uint8) {
	if c.writing {
		c.b = append(c.b, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}

func (c *coder) short(v *uint16) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	} else if b := c.take(2); b != nil {
		*v = binary.BigEndian.Uint16(b)
	}
}

func (c *coder) long(v *uint32) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else if b := c.take(4); b != nil {
		*v = binary.BigEndian.Uint32(b)
	}
}

func (c *coder) longlong(v *uint64) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else if b := c.take(8); b != nil {
		*v = binary.BigEndian.Uint64(b)
	}
}

// shortstr is cut at 255 bytes when written; callers check names before.
func (c *coder) shortstr(v *string) {
	if c.writing {
		s := *v
		if len(s) > 255 {
			s = s[:255]
		}
		c.b = append(append(c.b, byte(len(s))), s...)
		return
	}
	var n uint8
	c.octet(&n)
	*v = string(c.take(int(n)))
}

func (c *coder) longstr(v *string) {
	n := uint32(len(*v))
	c.long(&n)
	if c.writing {
		c.b = append(c.b, *v...)
		return
	}
	if uint64(n) > uint64(len(c.b)) {
		c.fail("a string goes beyond the end of its frame")
		return
	}
	*v = string(c.take(int(n)))
}

// bits packs up to eight flags into an octet, the first in the lowest bit
// (section 4.2.5.2). A flag that nobody defined must be zero.
func (c *coder) bits(flags ...*bool) {
	var o uint8
	for i, f := range flags {
		if *f {
			o |= 1 << i
		}
	}
	c.octet(&o)
	for i, f := range flags {
		*f = o&(1<<i) != 0
	}
	if o>>len(flags) != 0 {
		c.fail("an undefined flag is set")
	}
}

// A Field is one entry of a table; a Table keeps the order in which its fields
// came, and repeated names too.
type Field struct {
	Name  string
	Value any
}

// A Table is a field table (section 4.2.5.5). Values are of these types:
// string (S), int32 (I), Decimal (D), float64 (d), float32 (f), Timestamp (T),
// Table (F), int64 (l), bool (t), []byte (x), []any (A).
type Table []Field

// A Decimal is Value divided by ten to the power of Scale.
type Decimal struct {
	Scale uint8
	Value uint32
}

// A Timestamp counts seconds since 1970.
type Timestamp uint64

// Get returns the string field of that name, or "".
func (t Table) Get(name string) string {
	for _, f := range t {
		if s, ok := f.Value.(string); ok && f.Name == name {
			return s
		}
	}
	return ""
}

// size is roughly how many bytes a table takes in memory.
func (t Table) size() int {
	n := 64 * cap(t)
	for _, f := range t {
		n += len(f.Name) + valueSize(f.Value)
	}
	return n
}

func valueSize(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 16
	case []byte:
		return len(v) + 24
	case Table:
		return v.size() + 24
	case []any:
		n := 32*cap(v) + 24
		for _, e := range v {
			n += valueSize(e)
		}
		return n
	}
	return 16
}

// maxDepth bounds tables within tables.
const maxDepth = 8

func (c *coder) table(t *Table) { c.tableAt(t, maxDepth) }

func (c *coder) tableAt(t *Table, depth int) {
	if c.writing {
		start := c.open()
		c.tableBody(t, depth)
		c.shut(start)
		return
	}
	c.within(func(in *coder) { in.tableBody(t, depth) })
}

// open leaves room for a length that shut fills in.
func (c *coder) open() int {
	c.b = append(c.b, 0, 0, 0, 0)
	return len(c.b)
}

func (c *coder) shut(start int) {
	if c.err != nil { // too deep to be written: nothing is
		return
	}
	binary.BigEndian.PutUint32(c.b[start-4:], uint32(len(c.b)-start))
}

// within reads a length and hands on exactly that many bytes.
func (c *coder) within(read func(*coder)) {
	var n uint32
	c.long(&n)
	if uint64(n) > uint64(len(c.b)) {
		c.fail("a table goes beyond the end of its frame")
		return
	}
	in := coder{b: c.take(int(n))}
	read(&in)
	if in.err != nil {
		c.err, c.b = in.err, nil
	}
}

// tableBody is a table without its length: what AMQPLAIN sends as its response.
func (c *coder) tableBody(t *Table, depth int) {
	if c.writing {
		for _, f := range *t {
			c.shortstr(&f.Name)
			c.value(&f.Value, depth)
		}
		return
	}
	*t = nil
	for len(c.b) > 0 && c.err == nil {
		var f Field
		c.shortstr(&f.Name)
		c.value(&f.Value, depth)
		*t = append(*t, f)
	}
}

func (c *coder) value(v *any, depth int) {
	if depth == 0 {
		c.fail("tables are nested too deep")
		return
	}
	if c.writing {
		c.writeValue(*v, depth)
		return
	}
	var kind uint8
	c.octet(&kind)
	if c.err != nil {
		return
	}
	*v = c.readValue(kind, depth)
}

func (c *coder) readValue(kind uint8, depth int) any {
	switch kind {
	case 'S':
		var s string
		c.longstr(&s)
		return s
	case 'x':
		var s string
		c.longstr(&s)
		return []byte(s)
	case 'I':
		var u uint32
		c.long(&u)
		return int32(u)
	case 'f':
		var u uint32
		c.long(&u)
		return math.Float32frombits(u)
	case 'l':
		var u uint64
		c.longlong(&u)
		return int64(u)
	case 'd':
		var u uint64
		c.longlong(&u)
		return math.Float64frombits(u)
	case 'T':
		var u uint64
		c.longlong(&u)
		return Timestamp(u)
	case 'D':
		var d Decimal
		c.octet(&d.Scale)
		c.long(&d.Value)
		return d
	case 't':
		var on bool
		c.bits(&on)
		return on
	case 'F':
		var t Table
		c.tableAt(&t, depth-1)
		return t
	case 'A':
		a := []any{}
		c.within(func(in *coder) {
			for len(in.b) > 0 && in.err == nil {
				var v any
				in.value(&v, depth-1)
				a = append(a, v)
			}
		})
		return a
	}
	c.fail("a table field of an unknown type")
	return nil
}

func (c *coder) writeValue(v any, depth int) {
	kind := func(k byte) { c.b = append(c.b, k) }
	switch v := v.(type) {
	case string:
		kind('S')
		c.longstr(&v)
	case []byte:
		kind('x')
		s := string(v)
		c.longstr(&s)
	case int32:
		kind('I')
		c.b = binary.BigEndian.AppendUint32(c.b, uint32(v))
	case float32:
		kind('f')
		c.b = binary.BigEndian.AppendUint32(c.b, math.Float32bits(v))
	case int64:
		kind('l')
		c.b = binary.BigEndian.AppendUint64(c.b, uint64(v))
	case float64:
		kind('d')
		c.b = binary.BigEndian.AppendUint64(c.b, math.Float64bits(v))
	case Timestamp:
		kind('T')
		c.b = binary.BigEndian.AppendUint64(c.b, uint64(v))
	case Decimal:
		kind('D')
		c.octet(&v.Scale)
		c.long(&v.Value)
	case bool:
		kind('t')
		c.bits(&v)
	case Table:
		kind('F')
		c.tableAt(&v, depth-1)
	case []any:
		kind('A')
		start := c.open()
		for _, e := range v {
			c.value(&e, depth-1)
		}
		c.shut(start)
	default:
		c.err = errorf(InternalError, "a table cannot hold a %T", v)
	}
}
