package muster

// Build is the version of these programs, set by the linker.
var Build = "unknown"

// Capability is what a program can do, as one number that only grows; peers
// compare it instead of versions.
//
//	1  first life: netboot, boot bus, setup, claim door, refresh, heartbeat
const Capability = 1
