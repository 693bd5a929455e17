// Package packaging is what the packages of muster's programs are made from.
// A root file system that is built here gets the same unit as the packages.
//
// It must never hold what one installation alone has: no key, address or name.
package packaging

import _ "embed"

// HostUnit is the unit of muster-host.
//
//go:embed muster-host.service
var HostUnit string
