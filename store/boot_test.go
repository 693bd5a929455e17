package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

func sighted(t testing.TB, s *Store, v muster.Sighting) muster.BootRecord {
	t.Helper()
	rs := must[[]muster.BootRecord](t)(s.Sight(t.Context(), start, booterCaller, "b1", []muster.Sighting{v}))
	if len(rs) != 1 {
		t.Fatalf("%d records for one sighting", len(rs))
	}
	kept := must[muster.BootRecord](t)(s.BootRecord(t.Context(), v.MAC))
	if kept.State != rs[0].State || kept.Address != rs[0].Address || kept.Probe != rs[0].Probe || kept.Note != rs[0].Note {
		t.Fatalf("told %+v, kept %+v", rs[0], kept)
	}
	return kept
}

func TestTheBootPolicyTakesIn(t *testing.T) {
	two := []muster.AdminNetwork{
		{Name: "a", Prefix: "10.1.0.0/24", Start: "10.1.0.10", End: "10.1.0.20", Gateway: "10.1.0.10", Interface: "eth1"},
		{Name: "b", Prefix: "10.2.0.0/24", Start: "10.2.0.10", End: "10.2.0.10", Giaddrs: []string{"192.0.2.7"}, CircuitID: "rack 7"},
	}
	for _, c := range []struct {
		name   string
		policy func(*muster.BootPolicy)
		seen   muster.Sighting
		state  muster.BootState
		addr   string
		note   string
	}{
		{"the lowest free address, not the gateway's", nil, muster.Sighting{Interface: "eth1"}, muster.Enrolling, "10.1.0.11", ""},
		{"through a relay in the prefix", nil, muster.Sighting{Giaddr: "10.2.0.1"}, muster.Enrolling, "10.2.0.10", ""},
		{"through a listed relay", nil, muster.Sighting{Giaddr: "192.0.2.7"}, muster.Enrolling, "10.2.0.10", ""},
		{"by option 82", nil, muster.Sighting{CircuitID: "rack 7", Giaddr: "203.0.113.1"}, muster.Enrolling, "10.2.0.10", ""},
		{"through an unknown relay", nil, muster.Sighting{Giaddr: "203.0.113.1", Interface: "eth1"}, muster.Discovered, "", "none of the boot policy's networks"},
		{"on an unknown interface", nil, muster.Sighting{Interface: "eth9"}, muster.Discovered, "", "none of the boot policy's networks"},
		{"auto_enroll is off", func(p *muster.BootPolicy) { p.AutoEnroll = false }, muster.Sighting{Interface: "eth1"}, muster.Discovered, "", "auto_enroll"},
		{"another prefix is allowed", func(p *muster.BootPolicy) { p.Allow = []muster.AllowEntry{{MACPrefix: "00:16:3e"}} }, muster.Sighting{Interface: "eth1"}, muster.Discovered, "", "allowlist"},
		{"its prefix is allowed", func(p *muster.BootPolicy) { p.Allow = []muster.AllowEntry{{MACPrefix: "52:54:00"}} }, muster.Sighting{Interface: "eth1"}, muster.Enrolling, "10.1.0.11", ""},
		{"its tag is allowed", func(p *muster.BootPolicy) { p.Allow = []muster.AllowEntry{{ServiceTag: "abc123"}} }, muster.Sighting{Interface: "eth1", ServiceTag: "ABC123"}, muster.Enrolling, "10.1.0.11", ""},
		{"another tag is allowed", func(p *muster.BootPolicy) { p.Allow = []muster.AllowEntry{{ServiceTag: "abc123"}} }, muster.Sighting{Interface: "eth1", ServiceTag: "ABC12"}, muster.Discovered, "", "allowlist"},
	} {
		s := open(t, sqliteURL(t))
		p := muster.DefaultBootPolicy()
		p.Networks = two
		if c.policy != nil {
			c.policy(&p)
		}
		must[muster.BootPolicy](t)(s.SetBootPolicy(t.Context(), start, ada, p))
		c.seen.MAC = boxNo(1).mac
		r := sighted(t, s, c.seen)
		if r.State != c.state || r.Address != c.addr || !strings.Contains(r.Note, c.note) || c.note == "" && r.Note != "" {
			t.Errorf("%s: %+v", c.name, r)
		}
		if c.addr != "" && (r.Networking == nil || !strings.HasPrefix(r.Networking.Address, c.addr+"/")) {
			t.Errorf("%s: networking %+v", c.name, r.Networking)
		}
		// Asking again changes nothing, and says nothing again.
		head := must[int64](t)(s.Head(t.Context()))
		sighted(t, s, c.seen)
		if now := must[int64](t)(s.Head(t.Context())); now != head {
			t.Errorf("%s: a repeated sighting went into the feed", c.name)
		}
		healthy(t, s)
	}
}

func TestProbingForAServiceTag(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		p := testPolicy()
		p.EnrollmentPI = nil
		p.Allow = []muster.AllowEntry{{ServiceTag: "abc123"}}
		must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, p))
		good, bad, mute := boxNo(1).mac, boxNo(2).mac, boxNo(3).mac
		for _, mac := range []string{good, bad, mute} {
			if r := sighted(t, s, muster.Sighting{MAC: mac}); r.State != muster.Discovered || !r.Probe || r.Address == "" {
				t.Fatalf("not probed: %+v", r)
			}
			sighted(t, s, muster.Sighting{MAC: mac}) // DHCP asks more than once
		}
		if r := sighted(t, s, muster.Sighting{MAC: good, ServiceTag: "ABC123"}); r.State != muster.Enrolling || r.Probe || r.Address != "10.77.0.100" {
			t.Errorf("matched: %+v", r)
		}
		if r := sighted(t, s, muster.Sighting{MAC: bad, ServiceTag: "XYZ"}); r.State != muster.Discovered || r.Probe || r.Address != "" || !strings.Contains(r.Note, "allowlist") {
			t.Errorf("not matched: %+v", r)
		}
		if r := sighted(t, s, muster.Sighting{MAC: bad}); r.Probe || r.Address != "" {
			t.Errorf("probed again though its tag is known: %+v", r)
		}
		if done := must[Expired](t)(s.Expire(ctx, start.Add(lifecycle.ProbeDeadline))); done != (Expired{Probes: 1}) {
			t.Errorf("%+v", done)
		}
		if r := must[muster.BootRecord](t)(s.BootRecord(ctx, mute)); r.Probe || r.Address != "" || r.Note == "" {
			t.Errorf("after its time: %+v", r)
		}
		// Once the tag is allowed, the next request gets it in.
		p.Allow = append(p.Allow, muster.AllowEntry{ServiceTag: "xyz"})
		must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, p))
		if r := sighted(t, s, muster.Sighting{MAC: bad}); r.State != muster.Enrolling || r.Note != "" {
			t.Errorf("%+v", r)
		}
		healthy(t, s)
	})
}

func TestOperatorsOnBootRecords(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		mac := boxNo(1).mac
		r := must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, mac, lifecycle.Enroll))
		if r.State != muster.Enrolling || r.Address != "10.77.0.100" || r.Provenance != "made by operator:ada" {
			t.Fatalf("%+v", r)
		}
		net := *r.Networking
		net.Resolvers = []string{"10.77.0.2"}
		image, rescue := "enroll", muster.RescueMode
		r = must[muster.BootRecord](t)(s.SetBootRecord(ctx, start, ada, mac, muster.BootChange{
			Mode: &rescue, AssignedPI: &image, KernelArgs: &[]string{"console=ttyS0"}, Networking: &net}))
		if r.Mode != muster.RescueMode || !r.RescueUntil.Equal(start.Add(lifecycle.RescueDefault)) || r.AssignedPI.Digest != digestNo(1) || r.KernelArgs[0] != "console=ttyS0" || r.Networking.Resolvers[0] != "10.77.0.2" {
			t.Fatalf("%+v", r)
		}
		net.Address = "10.78.0.101/24"
		day, none := 100000, "nothing"
		for name, c := range map[string]struct {
			change muster.BootChange
			field  string
		}{
			"destroys pools":  {muster.BootChange{KernelArgs: &[]string{"quiet", "destroy_zpools=true"}}, "kernel_args[1]"},
			"rescue for ever": {muster.BootChange{Mode: &rescue, RescueFor: &day}, "rescue_seconds"},
			"no such image":   {muster.BootChange{AssignedPI: &none}, "assigned_pi"},
			"another address": {muster.BootChange{Networking: &net}, "networking.address"},
		} {
			_, err := s.SetBootRecord(ctx, start, ada, mac, c.change)
			wantCode(t, err, muster.CodeInvalid)
			if !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%s: %v does not name %s", name, err, c.field)
			}
		}
		err := s.RemoveImage(ctx, start, ada, "enroll")
		wantCode(t, err, muster.CodeConflict)

		r = must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, mac, lifecycle.Decommission))
		if r.State != muster.BootDecommissioned || r.Address == "" {
			t.Fatalf("%+v", r)
		}
		_, err = s.RaiseBootRecord(ctx, start, ada, mac, lifecycle.Enroll)
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "reactivate") {
			t.Errorf("the way out is not named: %v", err)
		}
		r = must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, mac, lifecycle.Reactivate))
		if r.State != muster.Discovered || r.Address != "10.77.0.100" || r.Provenance == "" || r.ServerUUID != "" {
			t.Fatalf("%+v", r)
		}
		_, err = s.RaiseBootRecord(ctx, start, ada, mac, "explode")
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.RaiseBootRecord(ctx, start, ada, "no mac", lifecycle.Enroll)
		wantCode(t, err, muster.CodeInvalid)
		healthy(t, s)
	})
}

func TestBadPoliciesNameTheField(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		for name, c := range map[string]struct {
			change func(*muster.BootPolicy)
			field  string
		}{
			"no network":        {func(p *muster.BootPolicy) { p.Networks[0].Prefix = "10.77.0.0" }, "networks[0].prefix"},
			"config escapes":    {func(p *muster.BootPolicy) { p.NodeConfig = map[string]string{"a": "b", "x": "'; reboot; '"} }, "node_config.x"},
			"config lays out":   {func(p *muster.BootPolicy) { p.NodeConfig = map[string]string{"layout": "mirror"} }, "node_config.layout"},
			"host bits":         {func(p *muster.BootPolicy) { p.Networks[0].Prefix = "10.77.0.1/24" }, "networks[0].prefix"},
			"IPv6":              {func(p *muster.BootPolicy) { p.Networks[0].Prefix = "fd00::/64" }, "networks[0].prefix"},
			"outside":           {func(p *muster.BootPolicy) { p.Networks[0].End = "10.78.0.1" }, "networks[0].end"},
			"broadcast":         {func(p *muster.BootPolicy) { p.Networks[0].End = "10.77.0.255" }, "networks[0].end"},
			"backwards":         {func(p *muster.BootPolicy) { p.Networks[0].End = "10.77.0.50" }, "networks[0].end"},
			"gateway elsewhere": {func(p *muster.BootPolicy) { p.Networks[0].Gateway = "10.78.0.1" }, "networks[0].gateway"},
			"name":              {func(p *muster.BootPolicy) { p.Networks[0].Name = "a b" }, "networks[0].name"},
			"resolver":          {func(p *muster.BootPolicy) { p.Networks[0].Resolvers = []string{"1.1.1.1", "dns"} }, "networks[0].resolvers[1]"},
			"overlap": {func(p *muster.BootPolicy) {
				p.Networks = append(p.Networks, muster.AdminNetwork{Name: "b", Prefix: "10.77.0.128/25", Start: "10.77.0.200", End: "10.77.0.201"})
			}, "networks[1].prefix"},
			"same name": {func(p *muster.BootPolicy) {
				p.Networks = append(p.Networks, muster.AdminNetwork{Name: "admin", Prefix: "10.78.0.0/24", Start: "10.78.0.2", End: "10.78.0.3"})
			}, "networks[1].name"},
			"both entries": {func(p *muster.BootPolicy) { p.Allow = []muster.AllowEntry{{ServiceTag: "a", MACPrefix: "52:54"}} }, "allow[0]"},
			"no prefix":    {func(p *muster.BootPolicy) { p.Allow = []muster.AllowEntry{{MACPrefix: "5:54"}} }, "allow[0].mac_prefix"},
			"no image":     {func(p *muster.BootPolicy) { p.EnrollmentPI = &muster.ImageRef{Name: "gone"} }, "enrollment_pi"},
			"wrong digest": {func(p *muster.BootPolicy) { p.RescuePI = &muster.ImageRef{Name: "enroll", Digest: digestNo(9)} }, "rescue_pi"},
		} {
			p := testPolicy()
			c.change(&p)
			_, err := s.SetBootPolicy(t.Context(), start, ada, p)
			wantCode(t, err, muster.CodeInvalid)
			if !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%s: %v does not name %s", name, err, c.field)
			}
		}
		// What is read can be written back, even when the name means more by now.
		must[muster.Image](t)(s.AddImage(t.Context(), start, ada, muster.Image{Name: "enroll", Digest: digestNo(2)}))
		old := must[muster.BootPolicy](t)(s.BootPolicy(t.Context()))
		same := must[muster.BootPolicy](t)(s.SetBootPolicy(t.Context(), start, ada, old))
		if *same.EnrollmentPI != *old.EnrollmentPI || same.EnrollmentPI.Digest != digestNo(1) {
			t.Errorf("%+v became %+v", old.EnrollmentPI, same.EnrollmentPI)
		}
		if i := must[muster.Image](t)(s.Image(t.Context(), "enroll")); i.Digest != digestNo(2) {
			t.Errorf("the name means %s", i.Digest)
		}
		if i := must[muster.Image](t)(s.Image(t.Context(), digestNo(1))); i.Name != "enroll" {
			t.Errorf("%+v", i)
		}
	})
}

func TestTheFeedIsIncremental(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		awaiting(t, s, b, start)
		all := must[muster.BooterFeed](t)(s.BooterFeed(ctx, 0))
		if len(all.Records) != 1 || all.Policy == nil || len(all.Installs) != 0 {
			t.Fatalf("%+v", all)
		}
		none := must[muster.BooterFeed](t)(s.BooterFeed(ctx, all.Seq))
		if none.Seq != all.Seq || len(none.Records) != 0 || none.Policy != nil {
			t.Fatalf("%+v", none)
		}
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		f := must[muster.BooterFeed](t)(s.BooterFeed(ctx, all.Seq))
		if f.Seq != all.Seq+1 || len(f.Installs) != 1 || f.Installs[0].Session != "s1" || f.Installs[0].Taken || !f.Installs[0].Deadline.Equal(start.Add(muster.SetupDeadline)) {
			t.Fatalf("%+v", f)
		}
		if f := must[muster.BooterFeed](t)(s.BooterFeed(ctx, 1<<40)); len(f.Records) != 1 || f.Policy == nil {
			t.Fatalf("a booter ahead of its store is not told everything: %+v", f)
		}
		must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, b.mac, lifecycle.Decommission))
		if f := must[muster.BooterFeed](t)(s.BooterFeed(ctx, f.Seq)); len(f.Records) != 1 || f.Records[0].State != muster.BootDecommissioned {
			t.Fatalf("%+v", f)
		}
		if err := s.ReportBooter(ctx, start, booterCaller, muster.BooterStatus{Booter: "b1", Seq: 3, Staged: []string{digestNo(1)}}); err != nil {
			t.Fatal(err)
		}
		if bs := must[[]muster.BooterStatus](t)(s.Booters(ctx)); len(bs) != 1 || bs[0].Seq != 3 || !bs[0].LastSeen.Equal(start) {
			t.Fatalf("%+v", bs)
		}
	})
}

func TestHeartbeatsWriteNothing(t *testing.T) {
	s := open(t, sqliteURL(t))
	site(t, s)
	b := boxNo(1)
	awaiting(t, s, b, start)
	install(t, s, b, start)
	before, later := dump(t, behind(t, s)), start.Add(time.Hour)
	s.Heartbeat(later, b.uuid)
	if dump(t, behind(t, s)) != before {
		t.Error("a heartbeat wrote SQL")
	}
	if r := must[muster.Registration](t)(s.Registration(t.Context(), b.uuid)); !r.LastSeen.Equal(later) {
		t.Errorf("last seen %s", r.LastSeen)
	}
	head := must[int64](t)(s.Head(t.Context()))
	if err := s.FlushSeen(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if ns := must[[]muster.Node](t)(s.Nodes(t.Context())); !ns[0].LastSeen.Equal(later) {
		t.Errorf("%+v", ns[0])
	}
	if now := must[int64](t)(s.Head(t.Context())); now != head {
		t.Error("heartbeats went into the feed")
	}
}

// TestSecondServersAreTold: a DHCP server that takes machines away from a
// booter is an event once, and again when it was gone meanwhile. Another
// booter is none, nor is the server that a proxying booter stands beside.
func TestSecondServersAreTold(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		foreign := muster.OtherServer{Address: "10.77.0.66", Differs: 1, MAC: "52:54:00:77:00:01", Offered: "10.77.0.201"}
		again, peer := foreign, muster.OtherServer{Address: "10.77.0.2", Same: 7}
		again.Differs, again.Offered = 900, "10.77.0.202"
		for _, step := range []struct {
			name   string
			b      muster.BooterStatus
			events int
		}{
			{"nobody", muster.BooterStatus{Booter: "b1"}, 0},
			{"another booter", muster.BooterStatus{Booter: "b1", OtherServers: []muster.OtherServer{peer}}, 0},
			{"seen", muster.BooterStatus{Booter: "b1", OtherServers: []muster.OtherServer{peer, foreign}}, 1},
			{"still there", muster.BooterStatus{Booter: "b1", OtherServers: []muster.OtherServer{peer, again}}, 1},
			{"where it is meant to be", muster.BooterStatus{Booter: "b1", Proxy: true, OtherServers: []muster.OtherServer{again}}, 1},
			{"unwanted again", muster.BooterStatus{Booter: "b1", OtherServers: []muster.OtherServer{again}}, 2},
			{"gone", muster.BooterStatus{Booter: "b1"}, 2},
			{"back", muster.BooterStatus{Booter: "b1", OtherServers: []muster.OtherServer{foreign}}, 3},
		} {
			if err := s.ReportBooter(t.Context(), start, booterCaller, step.b); err != nil {
				t.Fatal(err)
			}
			if n := entries(t, s, "booter/b1", "second_dhcp_server"); n != step.events {
				t.Errorf("%s: %d events, not %d", step.name, n, step.events)
			}
		}
		es := must[[]muster.AuditEntry](t)(s.Audit(t.Context(), muster.AuditFilter{Subject: "booter/b1"}))
		var d struct{ Server, Offered, MAC string }
		if err := json.Unmarshal(es[0].Detail, &d); err != nil || d.Server != foreign.Address || d.Offered != foreign.Offered || d.MAC != foreign.MAC {
			t.Errorf("%s %v", es[0].Detail, err)
		}
	})
}
