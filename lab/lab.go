// Package lab is whole installations to try things in: one in a single process
// with simulated machines (`muster dev`), and one of real programs with virtual
// machines that boot from the network by real firmware (`muster lab`, and the
// slow tests).
//
// It must never touch a network, a disk or a process that it did not make: the
// virtual machines live in a network namespace of their own, with no way out.
package lab
