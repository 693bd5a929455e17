package muster

import (
	"context"
	"maps"
	"regexp"

	"muster.internal/module"
)

// Labelling is what people say of hardware that no program finds out.
type Labelling interface {
	// LabelNode and LabelDisk set and remove labels, all or none. Labels are what
	// modules are spread over and selected by.
	LabelNode(ctx context.Context, nodeID string, c LabelChange) (Node, error)
	LabelDisk(ctx context.Context, diskID string, c LabelChange) (NodeDisk, error)
	// SetReservoir holds capacity of a node back from every placement; an empty
	// one gives it free.
	SetReservoir(ctx context.Context, nodeID string, r module.Capacity) (Node, error)
	// NoteNode and NoteMachine keep a few lines for people; an empty note is
	// none.
	NoteNode(ctx context.Context, nodeID string, n Note) (Node, error)
	NoteMachine(ctx context.Context, machineID string, n Note) (Machine, error)
	// Disks are all that the fleet holds or held, by node.
	Disks(ctx context.Context) ([]NodeDisk, error)
}

// A LabelChange sets and removes labels; those that it does not name stay.
type LabelChange struct {
	Set    map[string]string `json:"set,omitempty"`
	Remove []string          `json:"remove,omitempty"`
}

// A Note is a text for people, which nothing goes by.
type Note struct {
	Note string `json:"note"`
}

// Limits of what people say of hardware.
const (
	MaxLabels    = 64
	MaxNoteBytes = 4096
)

var (
	labelKey   = regexp.MustCompile(`^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:/@+-]{0,61}[A-Za-z0-9])?$`)
)

// CheckLabel tells whether key=value can be a label.
func CheckLabel(key, value string) error {
	if !labelKey.MatchString(key) {
		return Invalid("labels", "%.70q cannot be a label's name: at most 63 small letters, digits, dots, slashes, dashes and underlines, a letter or digit at either end", key)
	}
	if !labelValue.MatchString(value) {
		return Invalid("labels", "%.70q cannot be the value of label %s: at most 63 letters, digits and . _ : / @ + -, a letter or digit at either end", value, key)
	}
	return nil
}

// Apply returns the labels as they become, and whether any is otherwise.
func (c LabelChange) Apply(labels map[string]string) (next map[string]string, changed bool, err error) {
	next = maps.Clone(labels)
	if next == nil {
		next = map[string]string{}
	}
	for _, key := range c.Remove {
		if _, both := c.Set[key]; both {
			return nil, false, Invalid("labels", "label %.70q is both set and removed", key)
		}
		delete(next, key)
	}
	for key, value := range c.Set {
		if err := CheckLabel(key, value); err != nil {
			return nil, false, err
		}
		next[key] = value
	}
	if len(next) > MaxLabels {
		return nil, false, Invalid("labels", "it would have %d labels, %d are the most", len(next), MaxLabels)
	}
	return next, !maps.Equal(next, labels), nil
}
