package muster

// Build is the version of these programs, set by the linker.
var Build = "unknown"

// Capability is what a program can do, as one number that only grows; peers
// compare it instead of versions.
//
//	1  first life: netboot, boot bus, setup, claim door, refresh, heartbeat; and
//	   the link: declarations of six kinds, reports, orders
//	2  what a host does not know of a declaration fails alone, and the rest applies
//	3  disks; checks of placements, and their health over the link
const Capability = 3
