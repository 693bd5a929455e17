package host

import (
	"fmt"

	"muster.internal"
	"muster.internal/setup"
)

// Role is what a machine is, for this boot.
type Role string

const (
	// RoleEnroll: announce on the boot bus and wait for a setup.
	RoleEnroll Role = "enroll"
	// RoleNode: this machine belongs to the fleet; authenticate.
	RoleNode Role = "node"
	// RoleRescue: import nothing, start nothing.
	RoleRescue Role = "rescue"
)

// A Boot is what was decided at start, and why.
type Boot struct {
	Role   Role
	Pool   Pool // the machine's own, when it is a node
	Reason string
}

// A Keeper opens pools and reads what is kept on them.
type Keeper interface {
	Pools() ([]Pool, error)
	Import(p Pool) error
	ReadCredential() (setup.Credential, error)
	Release(p Pool) error
}

// Start decides what this machine is. A machine that finds its own pool with a
// credential on it is a node, even when it was told to enroll: the report of
// its setup may have been lost. It never wipes and never writes.
func Start(mode, serverUUID string, k Keeper) (Boot, setup.Credential) {
	none := setup.Credential{}
	if mode == string(RoleRescue) {
		return Boot{Role: RoleRescue, Reason: "it was started for rescue"}, none
	}
	enroll := func(format string, args ...any) (Boot, setup.Credential) {
		return Boot{Role: RoleEnroll, Reason: fmt.Sprintf(format, args...)}, none
	}
	pools, err := k.Pools()
	if err != nil {
		return enroll("its pools cannot be read: %v", err)
	}
	var own []Pool
	for _, p := range pools {
		if p.Name == muster.PoolName && muster.SameUUID(p.Stamp, serverUUID) && serverUUID != "" {
			own = append(own, p)
		}
	}
	switch {
	case len(own) == 0 && len(pools) == 0:
		return enroll("it has no pool '%s'", muster.PoolName)
	case len(own) == 0:
		return enroll("its pool '%s' (guid %s) does not carry this machine's stamp", pools[0].Name, pools[0].GUID)
	case len(own) > 1:
		return enroll("two pools '%s' (guid %s and %s) carry its stamp: take one of them out", muster.PoolName, own[0].GUID, own[1].GUID)
	}
	p := own[0]
	if err := k.Import(p); err != nil {
		return enroll("its pool '%s' (guid %s) cannot be imported: %v", p.Name, p.GUID, err)
	}
	c, err := k.ReadCredential()
	if err == nil && !muster.SameUUID(c.ServerUUID, serverUUID) {
		err = fmt.Errorf("it belongs to machine %s", c.ServerUUID)
	}
	if err == nil {
		return Boot{Role: RoleNode, Pool: p, Reason: fmt.Sprintf("its pool '%s' (guid %s) holds its credential", p.Name, p.GUID)}, c
	}
	why := fmt.Sprintf("its pool '%s' (guid %s) holds no usable credential: %v", p.Name, p.GUID, err)
	if err := k.Release(p); err != nil {
		why += fmt.Sprintf("; and the pool cannot be closed again: %v", err)
	}
	return enroll("%s", why)
}
