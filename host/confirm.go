package host

import (
	"fmt"

	"muster.internal/resource"
)

// Confirm tells whether a host that has lost its record takes this entry of the
// control plane's mirror back: only when what stands there is what the entry
// says that the host left. What is not so may be anybody's by now. kept tells
// whether the first content of an adopted file is still here; without it the
// file cannot be given back, and is left as it is.
func Confirm(o resource.Owned, is resource.State, kept bool) (resource.Owned, error) {
	left := o.Applied
	if o.Conflict { // it was taken over and never changed
		left = o.Found
	}
	switch {
	case o.Ref.Kind() == resource.KindAction:
		return o, fmt.Errorf("nothing can be read of what an action did")
	case is == nil:
		return o, fmt.Errorf("nothing is there")
	case len(left) == 0:
		return o, fmt.Errorf("the mirror does not say what this host left there")
	case !is.Satisfies(left):
		return o, fmt.Errorf("it is not as this host left it: %s", spell(resource.Differences(is, left)))
	}
	if o.Original != "" && !kept {
		o.Origin, o.Original = resource.OriginFound, ""
	}
	o.Begun = false
	return o, nil
}

// Recover takes back from the mirror what a reading confirms and the ledger
// does not know better, and tells of each entry that is not taken why.
func Recover(mirror []resource.Owned, m Resources, ledger Ledger, kept func(original string) bool) (taken int, left []resource.Line, err error) {
	for _, o := range mirror {
		if _, known := ledger.Get(o.Ref); known {
			continue
		}
		var is resource.State
		why := error(nil)
		if o.Ref.Kind() != resource.KindAction {
			is, why = m.Read(o.Ref)
		}
		if why == nil {
			o, why = Confirm(o, is, o.Original != "" && kept(o.Original))
		}
		if why != nil {
			left = append(left, resource.Line{Ref: o.Ref, Outcome: resource.OutcomeKept, Reason: why.Error()})
			continue
		}
		if err := ledger.Write(o); err != nil {
			return taken, left, err
		}
		taken++
	}
	return taken, left, ledger.Sync()
}
