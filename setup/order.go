package setup

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster.internal"
)

// The environment variables of an order; an agent runs the script with these
// and nothing else.
const (
	EnvServerUUID = "MUSTER_SERVER_UUID"
	EnvEpoch      = "MUSTER_EPOCH"
	EnvTime       = "MUSTER_TIME"
	EnvHostname   = "MUSTER_HOSTNAME"
	EnvPlan       = "MUSTER_PLAN"
	EnvBundle     = "MUSTER_BUNDLE"
)

// maxEnv bounds one variable: Linux refuses an argument string of 128 KiB.
const maxEnv = 120 << 10

// An Order is everything about one approved setup that differs from machine to
// machine.
type Order struct {
	ServerUUID string
	Epoch      int64
	Time       time.Time // what the clock is to be set to; whole seconds
	Hostname   string    // empty: none chosen
	Plan       muster.SetupPlan
	Bundle     []byte // sealed
}

// Env spells an order as environment variables. It refuses what ParseOrder
// would refuse, so that nothing is sent that cannot be understood.
func (o Order) Env() (map[string]string, error) {
	plan, err := json.Marshal(o.Plan)
	if err != nil {
		return nil, fmt.Errorf("encoding the setup plan of %s: %w", o.ServerUUID, err)
	}
	env := map[string]string{
		EnvServerUUID: o.ServerUUID,
		EnvEpoch:      strconv.FormatInt(o.Epoch, 10),
		EnvTime:       strconv.FormatInt(o.Time.Unix(), 10),
		EnvHostname:   o.Hostname,
		EnvPlan:       string(plan),
		EnvBundle:     base64.StdEncoding.EncodeToString(o.Bundle),
	}
	if _, err := ParseOrder(env); err != nil {
		return nil, err
	}
	return env, nil
}

// ParseOrder reads an order from environment variables, as Env spelled it.
// Every value passes a gate before anything else sees it.
func ParseOrder(env map[string]string) (Order, error) {
	var o Order
	for _, k := range []string{EnvServerUUID, EnvEpoch, EnvTime, EnvHostname, EnvPlan, EnvBundle} {
		v := env[k]
		if v == "" && k != EnvHostname {
			return o, fmt.Errorf("the order has no %s", k)
		}
		if len(v) > maxEnv {
			return o, fmt.Errorf("%s is %d bytes; a machine can be handed %d at most (exclude disks that the setup does not need)", k, len(v), maxEnv)
		}
		if strings.ContainsAny(v, "\x00\r\n") {
			return o, fmt.Errorf("%s holds a character that no order has", k)
		}
	}
	var err error
	if o.ServerUUID, err = muster.ParseUUID(env[EnvServerUUID]); err != nil || o.ServerUUID != env[EnvServerUUID] {
		return Order{}, fmt.Errorf("%s is not a machine's UUID in canonical spelling", EnvServerUUID)
	}
	if o.Epoch, err = number(env[EnvEpoch]); err != nil || o.Epoch < 1 {
		return Order{}, fmt.Errorf("%s is not a setup epoch", EnvEpoch)
	}
	secs, err := number(env[EnvTime])
	if err != nil || secs < 1 || secs > 253402300799 { // the year 9999
		return Order{}, fmt.Errorf("%s is not a time in seconds since 1970", EnvTime)
	}
	o.Time = time.Unix(secs, 0).UTC()
	if o.Hostname = env[EnvHostname]; o.Hostname != "" && !muster.ValidHostname(o.Hostname) {
		return Order{}, fmt.Errorf("%s is not one RFC 1123 label", EnvHostname)
	}
	if o.Bundle, err = base64.StdEncoding.Strict().DecodeString(env[EnvBundle]); err != nil {
		return Order{}, fmt.Errorf("%s is not base64", EnvBundle)
	}
	if o.Plan, err = parsePlan(env[EnvPlan]); err != nil {
		return Order{}, err
	}
	if o.Plan.ServerUUID != o.ServerUUID {
		return Order{}, fmt.Errorf("the plan is for machine %q, the order for %s", o.Plan.ServerUUID, o.ServerUUID)
	}
	if o.Plan.Hostname != o.Hostname {
		return Order{}, fmt.Errorf("the plan's hostname %q is not the order's %q", o.Plan.Hostname, o.Hostname)
	}
	return o, nil
}

func parsePlan(s string) (muster.SetupPlan, error) {
	var p muster.SetupPlan
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("%s is not a setup plan: %v", EnvPlan, err)
	}
	if d.More() {
		return p, fmt.Errorf("%s holds more than a plan", EnvPlan)
	}
	if got := PlanDigest(p); p.Digest != got {
		return muster.SetupPlan{}, fmt.Errorf("the plan's digest is %q, but its content has %s: it was changed on the way", p.Digest, got)
	}
	return p, nil
}

// Check tells whether an opened bundle belongs to this order.
func (o Order) Check(b Bundle) error {
	switch {
	case b.ServerUUID != o.ServerUUID:
		return fmt.Errorf("the bundle is for machine %s, the order for %s", b.ServerUUID, o.ServerUUID)
	case b.Epoch != o.Epoch:
		return fmt.Errorf("the bundle is of epoch %d, the order of %d", b.Epoch, o.Epoch)
	case b.Plan != o.Plan.Digest:
		return fmt.Errorf("the bundle was made for another plan than the order carries")
	case len(b.ProofKey) < 32 || b.APIKey == "" || b.URL == "":
		return fmt.Errorf("the bundle is incomplete")
	}
	return nil
}

// number reads decimal digits and nothing else.
func number(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && strconv.FormatInt(n, 10) != s {
		err = strconv.ErrSyntax
	}
	return n, err
}
