package world

import (
	"context"
	"slices"
)

// Shrink drops steps for as long as what is left goes wrong in the same way, at
// most so many tries, and returns the smallest scenario that does with what it
// comes to.
func Shrink(ctx context.Context, s Scenario, tries int) (Scenario, Result, error) {
	smallest, err := Run(ctx, s)
	if err != nil || len(smallest.Wrong) == 0 {
		return s, smallest, err
	}
	for size := (len(s.Steps) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(s.Steps) && tries > 0 && ctx.Err() == nil; {
			less := s
			less.Steps = slices.Concat(s.Steps[:from], s.Steps[min(from+size, len(s.Steps)):])
			tries--
			r, err := Run(ctx, less)
			if err != nil {
				return s, smallest, err
			}
			if r.kind != smallest.kind || ctx.Err() != nil {
				from += size
				continue
			}
			s, smallest = less, r
		}
	}
	return s, smallest, nil
}
