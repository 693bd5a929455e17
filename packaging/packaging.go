// Package packaging is what the packages of muster's programs are made from.
// A root file system that is built here gets the same unit as the packages.
package packaging

import _ "embed"

// HostUnit is the unit of muster-host.
//
//go:embed muster-host.service
var HostUnit string
