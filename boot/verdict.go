package boot

import (
	"muster.internal"
)

// Verdict is the decision as it is kept and shown.
func (d *Decision) Verdict() muster.BootVerdict {
	v := muster.BootVerdict{Serve: d.Serve, Reason: d.Reason.String(), Rule: string(d.Rule), Quirk: d.Quirks.String(), Why: d.Why(), Record: d.State,
		Mode: d.Mode.String(), Stage: d.Stage.String(), Arch: int(d.Arch), Loader: d.Loader}
	if d.Named != nil {
		named := *d.Named
		v.Image = &named
	}
	if d.Address.IsValid() {
		v.Address = d.Address.String()
	}
	return v
}
