package kubernetes

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
)

func TestMatch(t *testing.T) {
	const uuid = "4c4c4544-0043-5810-8032-b8c04f503533"
	fleet := []muster.Node{
		{ID: "n1", ServerUUID: uuid, Hostname: "Web1", State: muster.NodeInService},
		{ID: "n2", ServerUUID: "9f1f7a30-62a1-4f4e-9a55-8d2f6a0c1b77", Hostname: "web2", State: muster.NodeInService},
		{ID: "n3", ServerUUID: "a", Hostname: "twin", State: muster.NodeInService},
		{ID: "n4", ServerUUID: "b", Hostname: "twin", State: muster.NodeInService},
		{ID: "n0", ServerUUID: uuid, Hostname: "web1", State: muster.NodeDecommissioned},
	}
	for name, c := range map[string]struct {
		label, uuid, name, host string
		want                    string
		unsure                  bool
	}{
		"by machine":                   {uuid: strings.ToUpper(uuid), name: "kube-1", want: "n1"},
		"by machine, in another order": {uuid: muster.SwapUUID(uuid), name: "kube-1", want: "n1"},
		"by name":                      {name: "web2", want: "n2"},
		"by name, whatever its case":   {name: "WEB1", want: "n1"},
		"by its own host name":         {name: "x", host: "web2", want: "n2"},
		"by label, before all else":    {label: "n2", uuid: uuid, name: "web1", want: "n2"},
		"by a host name in the label":  {label: "WEB2", name: "web1", want: "n2"},
		"by a machine in the label":    {label: uuid, want: "n1"},
		"a wrong label is nobody's":    {label: "n9", uuid: uuid, name: "web1"},
		"nobody":                       {uuid: "00000000-0000-0000-0000-000000000000", name: "x"},
		"two of one name":              {name: "twin", unsure: true},
		"two of one label":             {label: "twin", unsure: true},
	} {
		var n node
		n.Meta.Name, n.Meta.Labels = c.name, map[string]string{"l": c.label}
		n.Status.Info.SystemUUID = c.uuid
		n.Status.Addresses = append(n.Status.Addresses, struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		}{"Hostname", c.host})
		got, unsure, why := match(n, "l", fleet)
		if got.ID != c.want || unsure != c.unsure || (why == "") != (c.want != "") {
			t.Errorf("%s: %q, unsure %v, %s", name, got.ID, unsure, why)
		}
	}
}

func TestLeaves(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		p    pod
		want bool
	}{
		"a bare one":           {pod{}, true},
		"of a replica set":     {pod{Meta: meta{Owners: []owner{{"ReplicaSet", true}}}}, true},
		"of a daemon set":      {pod{Meta: meta{Owners: []owner{{"DaemonSet", true}}}}, false},
		"beside a daemon set":  {pod{Meta: meta{Owners: []owner{{"DaemonSet", false}}}}, true},
		"a mirror":             {pod{Meta: meta{Annotations: map[string]string{mirror: ""}}}, false},
		"ended well":           {pod{Status: phase("Succeeded")}, false},
		"ended badly":          {pod{Status: phase("Failed")}, false},
		"on its way out still": {pod{Meta: meta{Deleted: &now}, Status: phase("Running")}, true},
	} {
		if got := leaves(c.p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func phase(p string) (s struct {
	Phase string `json:"phase"`
}) {
	s.Phase = p
	return s
}

func TestLeft(t *testing.T) {
	for want, got := range map[string]string{"1 pod left": left(1, ""), "2 pods left; a b": left(2, "a\nb")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s := left(2, strings.Repeat("ü", 400)); len(s) > 512 {
		t.Errorf("%d bytes are more than a claim holds", len(s))
	}
}
