package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	muster "muster.internal"
)

// page is how many rows one request brings; lists are walked page by page.
const page = 500

// everyPage walks a list to its end; key is what the page after a row is asked
// for by.
func everyPage[T any](next func(after string) ([]T, error), key func(T) string) ([]T, error) {
	var all []T
	for after := ""; ; {
		ts, err := next(after)
		if err != nil {
			return nil, err
		}
		all = append(all, ts...)
		if len(ts) < page {
			return all, nil
		}
		after = key(ts[len(ts)-1])
	}
}

func allRegistrations(ctx context.Context, f muster.Fleet, state muster.RegistrationState) ([]muster.Registration, error) {
	return everyPage(func(after string) ([]muster.Registration, error) {
		return f.Registrations(ctx, muster.RegistrationFilter{State: state, After: after, Limit: page})
	}, func(r muster.Registration) string { return r.ServerUUID })
}

func allBootRecords(ctx context.Context, f muster.Fleet, state muster.BootState) ([]muster.BootRecord, error) {
	return everyPage(func(after string) ([]muster.BootRecord, error) {
		return f.BootRecords(ctx, muster.BootFilter{State: state, After: after, Limit: page})
	}, func(r muster.BootRecord) string { return r.MAC })
}

func allMachines(ctx context.Context, f muster.Fleet, state muster.MachineState) ([]muster.Machine, error) {
	return everyPage(func(after string) ([]muster.Machine, error) {
		return f.Machines(ctx, muster.MachineFilter{State: state, After: after, Limit: page})
	}, func(m muster.Machine) string { return m.ID })
}

// machine finds the registration that ref names: a whole UUID is taken as it
// is; else a serial number, a host name, a MAC address or the beginning of a
// UUID (four characters or more). Exact names win over beginnings, and what
// names two machines names none.
func machine(ctx context.Context, f muster.Fleet, ref string) (muster.Registration, error) {
	if uuid, err := muster.ParseUUID(ref); err == nil {
		return f.Registration(ctx, uuid)
	}
	rs, err := allRegistrations(ctx, f, "")
	if err != nil {
		return muster.Registration{}, err
	}
	exact, begins := match(rs, ref)
	if len(exact) > 0 {
		begins = exact
	}
	switch len(begins) {
	case 1:
		// The list may be without what only the single view holds.
		return f.Registration(ctx, begins[0].ServerUUID)
	case 0:
		return muster.Registration{}, &hinted{
			err:  muster.Problemf(muster.CodeNotFound, "no registration has UUID, serial number, host name or MAC address %q", ref),
			hint: "muster registration ls shows the machines, muster boot ls every network card that has asked to boot",
		}
	}
	return muster.Registration{}, usagef("%q names %d machines: %s", ref, len(begins), describeAll(begins))
}

// uuidOf takes a UUID as it is: its machine may be forgotten.
func uuidOf(ctx context.Context, f muster.Fleet, ref string) (string, error) {
	if uuid, err := muster.ParseUUID(ref); err == nil {
		return uuid, nil
	}
	r, err := machine(ctx, f, ref)
	return r.ServerUUID, err
}

func match(rs []muster.Registration, ref string) (exact, begins []muster.Registration) {
	low := strings.ToLower(strings.TrimSpace(ref))
	mac, macErr := muster.ParseMAC(ref)
	for _, r := range rs {
		switch {
		case low != "" && (strings.ToLower(r.Serial) == low || strings.ToLower(r.Hostname) == low),
			macErr == nil && slices.Contains(r.MACs, mac):
			exact = append(exact, r)
		case len(low) >= 4 && (strings.HasPrefix(r.ServerUUID, low) || strings.HasPrefix(muster.SwapUUID(r.ServerUUID), low)):
			begins = append(begins, r)
		}
	}
	return exact, begins
}

func describeAll(rs []muster.Registration) string {
	var b strings.Builder
	for i, r := range rs {
		if i == 5 {
			fmt.Fprintf(&b, ", and %d more", len(rs)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", r.ServerUUID, strings.TrimSpace(said(r.Hostname+" "+r.Serial)))
	}
	return b.String()
}

// nic finds the boot record that ref names: a MAC address is taken as it is;
// else a reserved address, or a machine with one admin NIC.
func nic(ctx context.Context, f muster.Fleet, ref string) (string, error) {
	if mac, err := muster.ParseMAC(ref); err == nil {
		return mac, nil
	}
	recs, err := allBootRecords(ctx, f, "")
	if err != nil {
		return "", err
	}
	for _, r := range recs {
		if r.Address == ref {
			return r.MAC, nil
		}
	}
	m, err := machine(ctx, f, ref)
	if muster.IsCode(err, muster.CodeNotFound) {
		return "", &hinted{
			err:  muster.Problemf(muster.CodeNotFound, "%q is no MAC address, no reserved address, and names no machine", ref),
			hint: "muster boot ls",
		}
	}
	if err != nil {
		return "", err
	}
	var macs []string
	for _, r := range recs {
		if r.ServerUUID == m.ServerUUID || slices.Contains(m.MACs, r.MAC) {
			macs = append(macs, r.MAC)
		}
	}
	switch len(macs) {
	case 1:
		return macs[0], nil
	case 0:
		return "", muster.Problemf(muster.CodeNotFound, "machine %s has no boot record", m.ServerUUID)
	}
	return "", usagef("machine %s has %d admin NICs: name one of %s", m.ServerUUID, len(macs), strings.Join(macs, ", "))
}

// callable is what an operator may call a machine by: its serial number, which
// is on its case, or its UUID.
func callable(r muster.Registration) string {
	if r.Serial != "" && !strings.ContainsAny(r.Serial, " \t'\"\\$`;&|<>()*?#!") {
		return said(r.Serial)
	}
	return r.ServerUUID
}
