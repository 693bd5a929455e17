package setup_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"muster.internal"
	"muster.internal/setup"

	"pgregory.net/rapid"
)

const uuid = "00112233-4455-6677-8899-aabbccddeea1"

func plan() muster.SetupPlan {
	p := muster.SetupPlan{
		ServerUUID: uuid, Serial: "S1", Pool: muster.ZFS, Layout: "mirror", Hostname: "n1", Compression: "on", Capacity: 100,
		VDevs: []muster.VDev{{Type: "mirror", Disks: []muster.Disk{{Path: "/dev/vdb", Serial: "a", Size: 100}, {Path: "/dev/vdc", Serial: "b", Size: 100}}}},
	}
	p.Digest = setup.PlanDigest(p)
	return p
}

func order() setup.Order {
	return setup.Order{ServerUUID: uuid, Epoch: 3, Time: time.Unix(1700000000, 0).UTC(), Hostname: "n1", Plan: plan(), Bundle: []byte("sealed")}
}

func bundle() setup.Bundle {
	return setup.Bundle{ServerUUID: uuid, Epoch: 3, Plan: plan().Digest, ProofKey: bytes.Repeat([]byte{7}, 32), URL: "https://m:8443", APIKey: "mus_x_y"}
}

func TestTheScriptsAreConstants(t *testing.T) {
	for _, s := range []string{setup.Script, setup.SurveyScript} {
		if !strings.HasPrefix(s, "#!/bin/sh\n") || strings.ContainsAny(s, "$`\\") {
			t.Errorf("a script must not expand anything: %q", s)
		}
	}
}

func TestOrderComesBackAsItWasSent(t *testing.T) {
	env, err := order().Env()
	if err != nil {
		t.Fatal(err)
	}
	got, err := setup.ParseOrder(env)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, order()) {
		t.Errorf("got %+v\nwant %+v", got, order())
	}
}

func TestOrderRefusesWhatItDoesNotKnow(t *testing.T) {
	other := plan()
	other.VDevs[0].Disks[0].Serial = "z" // the digest is the old one
	changed, _ := json.Marshal(other)
	for _, c := range []struct{ key, value, want string }{
		{setup.EnvServerUUID, "", "no MUSTER_SERVER_UUID"},
		{setup.EnvServerUUID, strings.ToUpper(uuid), "canonical"},
		{setup.EnvServerUUID, "00000000-0000-0000-0000-000000000000", "UUID"},
		{setup.EnvEpoch, "0", "epoch"},
		{setup.EnvEpoch, "+3", "epoch"},
		{setup.EnvEpoch, "3; reboot", "epoch"},
		{setup.EnvTime, "-1", "time"},
		{setup.EnvTime, "99999999999999", "time"},
		{setup.EnvHostname, "n1'; reboot", "RFC 1123"},
		{setup.EnvHostname, "n2", "hostname"},
		{setup.EnvPlan, "{}", "digest"},
		{setup.EnvPlan, string(changed), "changed on the way"},
		{setup.EnvPlan, `{"colour":1}`, "colour"},
		{setup.EnvPlan, "{}\n", "character"},
		{setup.EnvPlan, strings.Repeat(" ", 200<<10), "at most"},
		{setup.EnvBundle, "%%%", "base64"},
	} {
		env, _ := order().Env()
		env[c.key] = c.value
		if _, err := setup.ParseOrder(env); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%.40q: got %v, want an error with %q", c.key, c.value, err, c.want)
		}
	}
}

func TestBundleIsBoundToItsOrder(t *testing.T) {
	if err := order().Check(bundle()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*setup.Bundle){
		"machine": func(b *setup.Bundle) { b.ServerUUID = "00112233-4455-6677-8899-aabbccddeea2" },
		"epoch":   func(b *setup.Bundle) { b.Epoch++ },
		"plan":    func(b *setup.Bundle) { b.Plan = "sha256:00" },
		"proof":   func(b *setup.Bundle) { b.ProofKey = nil },
		"key":     func(b *setup.Bundle) { b.APIKey = "" },
	} {
		b := bundle()
		if spoil(&b); order().Check(b) == nil {
			t.Errorf("another %s passed", name)
		}
	}
}

func TestSealedBundleOpensOnlyForItsKey(t *testing.T) {
	private, public, err := setup.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public2, err := setup.ParsePublicKey(setup.EncodePublicKey(public))
	if err != nil || !bytes.Equal(public, public2) {
		t.Fatal("a public key must survive its announcement", err)
	}
	sealed, err := setup.Seal(public, bundle())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("mus_x_y")) {
		t.Fatal("the key is readable in the sealed bundle")
	}
	got, err := setup.Open(private, sealed)
	if err != nil || !reflect.DeepEqual(got, bundle()) {
		t.Fatalf("got %+v, %v", got, err)
	}
	other, _, _ := setup.GenerateKey()
	if _, err := setup.Open(other, sealed); err == nil {
		t.Error("another boot's key opened the bundle")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := setup.Open(private, bad); err == nil {
			t.Errorf("a bundle with byte %d changed was opened", i)
		}
	}
	if _, err := setup.Open(private, nil); err == nil {
		t.Error("an empty bundle was opened")
	}
}

func TestUnusablePublicKeys(t *testing.T) {
	zero := make([]byte, 32)
	for _, s := range []string{"", "AAAA", "!", base64.StdEncoding.EncodeToString(zero), base64.StdEncoding.EncodeToString(append(zero, 1))} {
		if _, err := setup.ParsePublicKey(s); err == nil {
			t.Errorf("%q was taken for a public key", s)
		}
	}
}

func TestSentinel(t *testing.T) {
	proof := setup.Proof([]byte("k"), uuid, 3)
	line := setup.Sentinel(3, proof)
	for _, c := range []struct {
		why, output string
		ok          bool
	}{
		{"alone", line, true},
		{"amid output, with CR", "hello\r\n" + line + "\r\nbye\n", true},
		{"twice the same", line + "\n" + line + "\n", true},
		{"inside a line", "echo " + line, false},
		{"with more behind", line + " x", false},
		{"two that differ", line + "\n" + setup.Sentinel(4, proof), false},
		{"proof in capitals", strings.ToUpper(line), false},
		{"short proof", setup.Sentinel(3, proof[2:]), false},
		{"negative epoch", setup.Sentinel(-3, proof), false},
		{"epoch with a zero before it", strings.Replace(line, "=3", "=03", 1), false},
		{"nothing", "", false},
	} {
		epoch, p, ok := setup.ParseSentinel(c.output)
		if ok != c.ok || ok && (epoch != 3 || p != proof) {
			t.Errorf("%s: got %d %q %v", c.why, epoch, p, ok)
		}
	}
	if !setup.ProofMatches(proof, setup.HashProof(proof)) || setup.ProofMatches("", setup.HashProof(proof)) {
		t.Error("proofs are compared wrongly")
	}
	for _, other := range []string{setup.Proof([]byte("l"), uuid, 3), setup.Proof([]byte("k"), uuid, 4), setup.Proof([]byte("k"), "x", 3)} {
		if other == proof {
			t.Error("the proof does not depend on key, machine and epoch")
		}
	}
}

func TestFailureLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reason := rapid.String().Draw(t, "reason")
		line := setup.FailureLine(reason)
		got, ok := setup.ParseFailure("x\n" + line + "\ny\n")
		if !ok || got != setup.CutReason(reason) {
			t.Fatalf("%q came back as %q", reason, got)
		}
		if len(got) > setup.MaxReason || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00") {
			t.Fatalf("%q is not a line of at most %d bytes", got, setup.MaxReason)
		}
	})
	if got := setup.CutReason(strings.Repeat("é", 400)); len(got) > setup.MaxReason || !strings.HasSuffix(got, "é…") {
		t.Errorf("cut to %d bytes, ending %q", len(got), got[len(got)-8:])
	}
}

func TestPlanDigestCoversEverything(t *testing.T) {
	a := plan()
	b, _ := json.Marshal(a)
	var back muster.SetupPlan
	if err := json.Unmarshal(b, &back); err != nil || setup.PlanDigest(back) != a.Digest {
		t.Fatal("a plan changed its digest on the wire")
	}
	for name, change := range map[string]func(*muster.SetupPlan){
		"serial":   func(p *muster.SetupPlan) { p.Serial = "S2" },
		"disk":     func(p *muster.SetupPlan) { p.VDevs[0].Disks[1].WWN = "x" },
		"contents": func(p *muster.SetupPlan) { p.VDevs[0].Disks[1].Contents = []muster.Content{{Kind: "ext4"}} },
		"rebuild":  func(p *muster.SetupPlan) { p.Rebuild = true },
		"warnings": func(p *muster.SetupPlan) { p.Warnings = []string{"w"} },
		"image":    func(p *muster.SetupPlan) { p.Image = &muster.ImageRef{Name: "i"} },
		"boot":     func(p *muster.SetupPlan) { p.PublicKey = "k" },
	} {
		p := plan()
		if change(&p); setup.PlanDigest(p) == a.Digest {
			t.Errorf("another %s has the same digest", name)
		}
	}
	if setup.PlanDigest(muster.SetupPlan{}) != setup.PlanDigest(muster.SetupPlan{VDevs: []muster.VDev{}}) {
		t.Error("no groups and an empty list of groups are the same plan")
	}
}

func FuzzParseOrder(f *testing.F) {
	env, _ := order().Env()
	f.Add(env[setup.EnvServerUUID], env[setup.EnvEpoch], env[setup.EnvTime], env[setup.EnvHostname], env[setup.EnvPlan], env[setup.EnvBundle])
	f.Fuzz(func(t *testing.T, u, e, tm, h, p, b string) {
		o, err := setup.ParseOrder(map[string]string{setup.EnvServerUUID: u, setup.EnvEpoch: e, setup.EnvTime: tm, setup.EnvHostname: h, setup.EnvPlan: p, setup.EnvBundle: b})
		if err != nil {
			return
		}
		if _, err := o.Env(); err != nil {
			t.Errorf("an order that was understood cannot be spelled: %v", err)
		}
	})
}

func FuzzParseSentinel(f *testing.F) {
	f.Add(setup.Sentinel(1, setup.Proof([]byte("k"), uuid, 1)))
	f.Fuzz(func(t *testing.T, s string) {
		epoch, proof, ok := setup.ParseSentinel(s)
		if ok && !strings.Contains(s, setup.Sentinel(epoch, proof)) {
			t.Errorf("%q is not in the output", setup.Sentinel(epoch, proof))
		}
	})
}
