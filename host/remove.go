package host

import (
	"errors"
	"fmt"

	"muster.internal/resource"
)

// Remove does with an owned resource what the removal table says, and tells
// how it fared. The caller forgets it unless that failed.
func Remove(o resource.Owned, m Resources, dryRun bool) resource.Line {
	line := resource.Line{Ref: o.Ref, Outcome: resource.OutcomeChanged}
	how := o.Removal()
	if o.Conflict || o.Ref == self { // it never was changed
		how = resource.RemovalForget
	}
	if how == resource.RemovalForget {
		line.Outcome, line.Did = resource.OutcomeOK, "forgotten"
		return line
	}
	is, err := m.Read(o.Ref)
	switch {
	case err != nil:
		line.Outcome, line.Reason = resource.OutcomeFailed, fmt.Sprintf("it cannot be read: %v", err)
		return line
	case is == nil && how != resource.RemovalRestore:
		line.Outcome, line.Did, line.Reason = resource.OutcomeOK, "forgotten", "it was gone already"
		if how == resource.RemovalRemove && !dryRun { // what a crash left of making it
			if err := m.Remove(o.Ref); err != nil {
				line.Outcome, line.Did, line.Reason = resource.OutcomeFailed, "", err.Error()
			}
		}
		return line
	case o.Begun && how != resource.RemovalRestore && !is.Satisfies(o.Applied) && o.Ref.Kind() != resource.KindService:
		line.Outcome, line.Did, line.Reason = resource.OutcomeKept, "forgotten", "it is not what this host was about to make"
		return line
	case how == resource.RemovalUnmount && is[resource.FieldID] != o.Applied[resource.FieldID] && is[resource.FieldID] != resource.Gone:
		line.Outcome, line.Did, line.Reason = resource.OutcomeKept, "forgotten", "something else is mounted there by now"
		return line
	case is != nil && o.Applied[resource.FieldType] != is[resource.FieldType]:
		line.Outcome, line.Did = resource.OutcomeKept, "forgotten"
		line.Reason = fmt.Sprintf("the host made a %s there, and now it is a %s", o.Applied[resource.FieldType], is[resource.FieldType])
		return line
	}
	if line.Did = dids[how]; dryRun {
		return line
	}
	switch how {
	case resource.RemovalRemove, resource.RemovalUnmount:
		err = m.Remove(o.Ref)
	case resource.RemovalStop:
		err = m.Stop(o.Ref)
	case resource.RemovalRestore:
		err = m.Restore(o)
	}
	switch {
	case errors.Is(err, ErrNotEmpty):
		line.Outcome, line.Did, line.Reason = resource.OutcomeKept, "forgotten", err.Error()
	case err != nil:
		line.Outcome, line.Did, line.Reason = resource.OutcomeFailed, "", err.Error()
	}
	return line
}

var dids = map[resource.Removal]string{resource.RemovalUnmount: "unmounted", resource.RemovalRemove: "removed", resource.RemovalStop: "stopped", resource.RemovalRestore: "restored"}
