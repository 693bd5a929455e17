// Package layout chooses how a machine's disks become a pool: which disks, in
// which groups, with which spares, logs and caches. The rules are those that
// operators of SmartOS know (disklayout); Realize puts them to the disks of one
// machine and to an operator's request.
//
// It must never look at a disk itself, and never plan a disk twice, or one that
// could not be recognised again.
package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Disk is a disk as the rules see it. Size is in bytes.
type Disk struct {
	Type       string `json:"type"` // SCSI, ATA, NVMe, …
	Name       string `json:"name"`
	VID        string `json:"vid"`
	PID        string `json:"pid"`
	Size       int64  `json:"size"`
	Removable  bool   `json:"removable"`
	SolidState bool   `json:"solid_state"`
}

// A Request is what the rules are put to. What is nil or empty is chosen by
// them.
type Request struct {
	Disks   []Disk   `json:"disks"`
	Layout  string   `json:"layout,omitempty"` // single, mirror, raidz1, raidz2, raidz3
	Spares  *int     `json:"spares,omitempty"`
	Width   *int     `json:"width,omitempty"` // disks in a group
	Cache   *bool    `json:"cache,omitempty"` // default true
	Exclude []string `json:"exclude,omitempty"`
}

// A Device is a disk that was given a role.
type Device struct {
	Name       string `json:"name"`
	VID        string `json:"vid"`
	PID        string `json:"pid"`
	Size       int64  `json:"size"`
	SolidState bool   `json:"solid_state"`
}

// A VDev is one group of a pool: a device alone (Type is empty), or devices of
// a type: mirror, raidz, raidz2, raidz3.
type VDev struct {
	Type    string
	Devices []Device
}

// MarshalJSON writes a group of one disk as that disk.
func (v VDev) MarshalJSON() ([]byte, error) {
	if v.Type == "" && len(v.Devices) == 1 {
		return json.Marshal(v.Devices[0])
	}
	return json.Marshal(struct {
		Type    string   `json:"type"`
		Devices []Device `json:"devices"`
	}{v.Type, v.Devices})
}

// UnmarshalJSON reads either form.
func (v *VDev) UnmarshalJSON(b []byte) error {
	var w struct {
		Type    string   `json:"type"`
		Devices []Device `json:"devices"`
		Device
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*v = VDev{w.Type, w.Devices}
	if w.Type == "" {
		v.Devices = []Device{w.Device}
	}
	return nil
}

// A Result is the pool that the rules arrive at. Capacity is in bytes, before
// any file system's overhead.
type Result struct {
	VDevs    []VDev   `json:"vdevs"`
	Capacity int64    `json:"capacity"`
	Spares   []Device `json:"spares,omitempty"`
	Logs     []Device `json:"logs,omitempty"`
	Cache    []Device `json:"cache,omitempty"`
	// Layout is the name of what was chosen; Unused says, by name, why a disk
	// was given no role. They are no part of the form above.
	Layout string            `json:"-"`
	Unused map[string]string `json:"-"`
}

// A Refusal is why no pool can be built, and which input it comes from.
type Refusal struct {
	Field string // disks, layout, spares, width
	Text  string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(field, format string, args ...any) error {
	return &Refusal{field, fmt.Sprintf(format, args...)}
}

const (
	maxDisks   = 1024
	maxSize    = 1 << 52 // bytes; the sum of all sizes stays within an int64
	maxRequest = 1 << 20
)

// ParseRequest reads a request as JSON, strictly.
func ParseRequest(r io.Reader) (Request, error) {
	var q Request
	b, err := io.ReadAll(io.LimitReader(r, maxRequest+1))
	if err != nil {
		return q, err
	}
	if len(b) > maxRequest {
		return q, refuse("disks", "a request is at most %d bytes", maxRequest)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return Request{}, fmt.Errorf("not a layout request: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Request{}, fmt.Errorf("not a layout request: more follows it")
	}
	return q, nil
}

// Plan puts the rules to a request. The same request has the same result. An
// error is a *Refusal.
func Plan(q Request) (Result, error) {
	if err := check(q); err != nil {
		return Result{}, err
	}
	r := Result{Unused: map[string]string{}}
	ro, err := assign(q, r.Unused)
	if err != nil {
		return Result{}, err
	}
	if err := checkSpares(len(ro.storage), q.Spares); err != nil {
		return Result{}, err
	}
	r.Layout = q.Layout
	if r.Layout == "" {
		r.Layout = choose(ro.storage, q)
	}
	if err := build(&r, ro.storage, q); err != nil {
		return Result{}, err
	}
	r.Logs, r.Cache = ro.logs, ro.cache
	return r, nil
}

// check refuses what is no question for the rules at all.
func check(q Request) error {
	if len(q.Disks) > maxDisks {
		return refuse("disks", "%d disks are more than the %d that a machine may have", len(q.Disks), maxDisks)
	}
	seen := map[string]bool{}
	for _, d := range q.Disks {
		if seen[d.Name] {
			return refuse("disks", "two disks are named %q", d.Name)
		}
		seen[d.Name] = true
		if d.Size < 0 || d.Size > maxSize {
			return refuse("disks", "disk %s: a size of %d bytes cannot be", d.Name, d.Size)
		}
	}
	if q.Spares != nil && *q.Spares < 0 {
		return refuse("spares", "%d spares cannot be", *q.Spares)
	}
	if q.Width != nil && *q.Width < 2 {
		return refuse("width", "a group has at least 2 disks, not %d", *q.Width)
	}
	return nil
}

// Names are the layouts that can be asked for.
var Names = []string{"single", "mirror", "raidz1", "raidz2", "raidz3"}

func excluded(q Request, name string) bool {
	return slices.ContainsFunc(q.Exclude, func(e string) bool { return strings.EqualFold(e, name) })
}
