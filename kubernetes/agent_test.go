package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/control"
	"muster.internal/enrol"
	"muster.internal/kubernetes"
)

// soon bounds what is waited for; nothing here is slow, but the machine may be.
const soon = 60 * time.Second

// A world is a control plane with two nodes of a fleet, an API server, the agent
// between them, and a kubelet of sorts.
type world struct {
	*testing.T
	fleet    api.Session
	base     string
	http     *http.Client
	log      *lines
	nodes    [2]string // ids
	stopWork func()
}

func begin(t *testing.T, base string, ca []byte, kubeconfig string) *world {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	w := &world{T: t, base: base, log: new(lines), http: trusting(pool)}
	c, err := control.Open(t.Context(), control.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.fleet = c.As(muster.Caller{Operator: "ada", Role: muster.Admin})
	for i := range w.nodes {
		w.nodes[i] = w.join(c.As(muster.Caller{Source: "192.0.2.1"}), i)
	}
	k, err := kubernetes.Open(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	agent := &kubernetes.Agent{Cluster: k, Fleet: c.As(muster.Caller{KeyID: "kube", Scope: muster.ScopeFull}), Holder: "kubernetes/prod", Label: "muster.internal/node",
		Lease: time.Minute, Every: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(w.log, nil))}
	go func() { defer close(done); agent.Run(ctx) }()
	w.stopWork = func() { cancel(); <-done }
	t.Cleanup(func() {
		w.stopWork()
		if t.Failed() {
			t.Log(w.log.String())
		}
		if strings.Contains(w.log.String(), bearer) {
			t.Error("the log has the cluster's token")
		}
	})
	return w
}

// trusting is a client that believes what pool signed.
func trusting(pool *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

// lines are what was logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func serverUUID(i int) string { return fmt.Sprintf("4c4c4544-0000-4000-8000-00000000000%d", i+1) }

// join lets a machine in by a token.
func (w *world) join(anyone api.Session, i int) string {
	w.Helper()
	issued, err := w.fleet.IssueEnrolmentToken(w.Context(), muster.NewEnrolmentToken{})
	if err != nil {
		w.Fatal(err)
	}
	tok, err := enrol.Decode(issued.Token)
	if err != nil {
		w.Fatal(err)
	}
	r, err := anyone.Enrol(w.Context(), muster.EnrolRequest{TokenID: issued.ID, Secret: base64.RawURLEncoding.EncodeToString(tok.Secret), Nonce: strings.Repeat("a", 31) + fmt.Sprint(i), ServerUUID: serverUUID(i), Hostname: fmt.Sprintf("worker-%d", i+1),
		Sysinfo: json.RawMessage(fmt.Sprintf(`{"UUID":%q,"Hostname":"worker-%d","Serial Number":"SER%d"}`, serverUUID(i), i+1, i))})
	if err != nil {
		w.Fatal(err)
	}
	return r.NodeID
}

// do asks the cluster as its other users do.
func (w *world) do(method, path string, in any) (out map[string]any) {
	w.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		w.Fatal(err)
	}
	r, err := http.NewRequest(method, w.base+path, bytes.NewReader(b))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	a, err := w.http.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	if a.StatusCode >= 300 && a.StatusCode != http.StatusNotFound {
		w.Fatalf("%s %s: %d %s", method, path, a.StatusCode, text)
	}
	json.Unmarshal(text, &out)
	return out
}

type object = map[string]any

func (w *world) node(name, systemUUID string, labels object) {
	w.Helper()
	w.do("POST", "/api/v1/nodes", object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": name, "labels": labels},
		"status": object{"nodeInfo": object{"systemUUID": systemUUID, "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"}}})
}

const podsPath = "/api/v1/namespaces/default/pods"

// pod puts a pod on a node, and says as its kubelet that it runs.
func (w *world) pod(name, node string, more object) {
	w.Helper()
	m := object{"name": name, "labels": object{"app": name}}
	for k, v := range more {
		m[k] = v
	}
	w.do("POST", podsPath, object{"apiVersion": "v1", "kind": "Pod", "metadata": m,
		"spec": object{"nodeName": node, "containers": []object{{"name": "c", "image": "busybox"}}}})
	w.do("PATCH", podsPath+"/"+name+"/status", object{"status": object{"phase": "Running", "conditions": []object{{"type": "Ready", "status": "True"}}}})
}

// kubelet ends what was told to go, and returns the names of what is left.
func (w *world) kubelet(node string) (names []string) {
	w.Helper()
	for _, name := range []string{"web-0", "db-0", "agent-0", "static-0"} {
		p := w.do("GET", podsPath+"/"+name, nil)
		m, _ := p["metadata"].(object)
		spec, _ := p["spec"].(object)
		if p["kind"] == "Status" || m == nil || spec["nodeName"] != node {
			continue
		}
		if m["deletionTimestamp"] != nil {
			w.do("DELETE", podsPath+"/"+name, object{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
			continue
		}
		names = append(names, name)
	}
	return names
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(soon); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("it is not so that %s", what)
		}
	}
}

// claim is the newest claim on a node, if there is one.
func (w *world) claim(node int) (c muster.Claim) {
	w.Helper()
	all, err := w.fleet.Claims(w.Context(), muster.ClaimFilter{NodeID: w.nodes[node], Ended: true})
	if err != nil {
		w.Fatal(err)
	}
	for _, c = range all {
	}
	return c
}

func (w *world) raise(node int, e muster.Event) {
	w.Helper()
	if _, err := w.fleet.RaiseNode(w.Context(), w.nodes[node], e); err != nil {
		w.Fatal(err)
	}
}

func (w *world) unschedulable(name string) (is bool, mark any) {
	w.Helper()
	n := w.do("GET", "/api/v1/nodes/"+name, nil)
	spec, _ := n["spec"].(object)
	m, _ := n["metadata"].(object)
	notes, _ := m["annotations"].(object)
	return spec["unschedulable"] == true, notes["muster.internal/cordoned"]
}

func (w *world) state(node int) muster.NodeState {
	w.Helper()
	n, err := w.fleet.Node(w.Context(), w.nodes[node])
	if err != nil {
		w.Fatal(err)
	}
	return n.State
}

// drains is the whole story, for an API server that is ours or a real one.
func (w *world) drains() {
	w.node("kube-1", strings.ToUpper(serverUUID(0)), object{})
	w.node("worker-2", "", object{})
	w.node("elsewhere", "", object{})
	w.until("both machines are claimed", func() bool { return w.claim(0).State == muster.ClaimHeld && w.claim(1).State == muster.ClaimHeld })
	if c := w.claim(0); c.Holder != "kubernetes/prod" || c.Reason != "in the cluster as kube-1" || c.MadeBy != "key:kube" {
		w.Errorf("%+v", c)
	}
	w.pod("web-0", "kube-1", nil)
	w.pod("db-0", "kube-1", nil)
	w.pod("agent-0", "kube-1", object{"ownerReferences": []object{{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}}})
	w.pod("static-0", "kube-1", object{"annotations": object{"kubernetes.io/config.mirror": "x"}})
	const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	w.do("POST", budgets, object{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": "db"}, "spec": object{"minAvailable": 1, "selector": object{"matchLabels": object{"app": "db-0"}}}})
	allow := func(n int) {
		w.do("PATCH", budgets+"/db/status", object{"status": object{"observedGeneration": 1, "disruptionsAllowed": n, "currentHealthy": 1, "desiredHealthy": 1 - n, "expectedPods": 1}})
	}
	allow(0)

	// Taken back in the middle: only our cordon goes.
	w.raise(0, "quiesce")
	w.until("the node is cordoned, by us", func() bool { is, mark := w.unschedulable("kube-1"); return is && mark == w.claim(0).ID })
	w.until("what its budget allows has gone, and the operator is told what has not", func() bool {
		names := w.kubelet("kube-1")
		c := w.claim(0)
		return fmt.Sprint(names) == "[db-0 agent-0 static-0]" && strings.HasPrefix(c.Reason, "1 pod left; default/db-0 stays: ") && strings.Contains(c.Reason, "budget")
	})
	if s := w.state(0); s == muster.NodeQuiesced {
		w.Errorf("the node is %s while a pod is there", s)
	}
	w.raise(0, "resume")
	w.until("the node is uncordoned", func() bool { is, mark := w.unschedulable("kube-1"); return !is && mark == nil })

	// An administrator of the cluster cordons the other one: that is not ours.
	w.do("PATCH", "/api/v1/nodes/worker-2", object{"spec": object{"unschedulable": true}})
	w.raise(1, "quiesce")
	w.until("the claim on an empty node is released", func() bool { return w.claim(1).Ended == muster.ClaimGivenUp })
	w.until("it is quiesced then", func() bool { return w.state(1) == muster.NodeQuiesced })
	w.raise(1, "resume")
	w.until("it is claimed again", func() bool { return w.claim(1).State == muster.ClaimHeld })
	if is, mark := w.unschedulable("worker-2"); !is || mark != nil {
		w.Errorf("what others cordoned stays so: %v, %v", is, mark)
	}

	// To the end: the removal waits for the budget.
	w.raise(0, "graceful_remove")
	w.until("it waits for the budget", func() bool { return strings.HasPrefix(w.claim(0).Reason, "1 pod left") })
	if s := w.state(0); s == muster.NodeDecommissioned {
		w.Errorf("the node is %s while a pod is there", s)
	}
	allow(1)
	w.until("the node leaves the fleet, after its last pod", func() bool {
		w.kubelet("kube-1")
		return w.state(0) == muster.NodeDecommissioned
	})
	if names := w.kubelet("kube-1"); fmt.Sprint(names) != "[agent-0 static-0]" {
		w.Errorf("left are %v", names)
	}
	if c := w.claim(0); c.Ended != muster.ClaimGivenUp {
		w.Errorf("%+v", c)
	}

	w.do("DELETE", "/api/v1/nodes/worker-2", object{})
	w.until("what leaves the cluster is claimed no longer", func() bool { return !w.claim(1).Live() })
}

// TestDrain runs against the small API server of this test.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	w := begin(t, s.URL, s.ca(), kubeconfigOf(t, s.URL, s.ca()))
	w.drains()
}

func kubeconfigOf(t *testing.T, url string, ca []byte) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), string(ca))
	write(t, filepath.Join(dir, "token"), bearer+"\n")
	return write(t, filepath.Join(dir, "config"), `apiVersion: v1
kind: Config
current-context: prod
contexts: [{name: prod, context: {cluster: prod, user: muster}}]
clusters: [{name: prod, cluster: {server: "`+url+`", certificate-authority: ca.pem}}]
users: [{name: muster, user: {tokenFile: token}}]
`)
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
