package muster_test

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"muster.internal"
)

func TestLabelChange(t *testing.T) {
	many := map[string]string{}
	for i := range muster.MaxLabels {
		many["k"+strconv.Itoa(i)] = "v"
	}
	for _, c := range []struct {
		name    string
		had     map[string]string
		change  muster.LabelChange
		want    map[string]string
		changed bool
		fails   string
	}{
		{"the first", nil, muster.LabelChange{Set: map[string]string{"rack": "r1"}}, map[string]string{"rack": "r1"}, true, ""},
		{"another value", map[string]string{"rack": "r1", "row": "2"}, muster.LabelChange{Set: map[string]string{"rack": "r2"}}, map[string]string{"rack": "r2", "row": "2"}, true, ""},
		{"the same again", map[string]string{"rack": "r1"}, muster.LabelChange{Set: map[string]string{"rack": "r1"}}, map[string]string{"rack": "r1"}, false, ""},
		{"removed", map[string]string{"rack": "r1", "row": "2"}, muster.LabelChange{Remove: []string{"row"}}, map[string]string{"rack": "r1"}, true, ""},
		{"one that is not there", map[string]string{"rack": "r1"}, muster.LabelChange{Remove: []string{"row"}}, map[string]string{"rack": "r1"}, false, ""},
		{"nothing", nil, muster.LabelChange{}, map[string]string{}, false, ""},
		{"both", nil, muster.LabelChange{Set: map[string]string{"rack": "r1"}, Remove: []string{"rack"}}, nil, false, "both set and removed"},
		{"a name with a blank", nil, muster.LabelChange{Set: map[string]string{"a rack": "r1"}}, nil, false, "label's name"},
		{"a name with a capital", nil, muster.LabelChange{Set: map[string]string{"Rack": "r1"}}, nil, false, "label's name"},
		{"no value", nil, muster.LabelChange{Set: map[string]string{"rack": ""}}, nil, false, "value of label rack"},
		{"a long value", nil, muster.LabelChange{Set: map[string]string{"rack": strings.Repeat("r", 64)}}, nil, false, "value of label rack"},
		{"a value that is a comma", nil, muster.LabelChange{Set: map[string]string{"rack": "a,b"}}, nil, false, "value of label rack"},
		{"one too many", many, muster.LabelChange{Set: map[string]string{"rack": "r1"}}, nil, false, "65 labels"},
	} {
		before := maps.Clone(c.had)
		got, changed, err := c.change.Apply(c.had)
		if c.fails != "" {
			if !muster.IsCode(err, muster.CodeInvalid) || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err != nil || changed != c.changed || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, changed %v, %v", c.name, got, changed, err)
		}
		if !maps.Equal(before, c.had) {
			t.Errorf("%s: what it had was changed: %v", c.name, c.had)
		}
	}
}
