package kubernetes_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// An apiServer is the part of Kubernetes that is used here, small and strict:
// nodes with a watch, pods, disruption budgets and evictions. What a real one
// does, and this does not, nothing here relies on: the same test runs against
// both.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	version int64
	objects map[string]map[string]any // by path
	log     []event                   // of nodes
	news    chan struct{}
	watches int
}

type event struct {
	version int64
	kind    string
	object  map[string]any
}

const bearer = "a-planted-token"

func startFake(t *testing.T) *apiServer {
	s := &apiServer{objects: map[string]map[string]any{}, news: make(chan struct{}), version: 1}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *apiServer) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func refuse(w http.ResponseWriter, code int, message string, causes ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	list := []map[string]any{}
	for _, c := range causes {
		list = append(list, map[string]any{"reason": "DisruptionBudget", "message": c})
	}
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "status": "Failure", "code": code, "message": message, "details": map[string]any{"causes": list}})
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+bearer {
		refuse(w, 401, "Unauthorized")
		return
	}
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	var in map[string]any
	if r.Method != http.MethodGet && json.NewDecoder(r.Body).Decode(&in) != nil && r.Method != http.MethodDelete {
		refuse(w, 400, "this is not JSON")
		return
	}
	switch base, sub := split(path); {
	case r.Method == http.MethodGet && s.objects[path] == nil:
		s.list(w, r, path)
	case r.Method == http.MethodPost && sub == "eviction":
		s.evict(w, base, in)
	case r.Method == http.MethodPost:
		name := meta(in)["name"].(string)
		meta(in)["uid"] = fmt.Sprint("uid-", s.version)
		if strings.Contains(path, "/namespaces/") {
			meta(in)["namespace"] = strings.Split(path, "/")[slices.Index(strings.Split(path, "/"), "namespaces")+1]
		}
		s.put(path+"/"+name, in, "ADDED")
		json.NewEncoder(w).Encode(in)
	case s.objects[base] == nil:
		refuse(w, 404, fmt.Sprintf("%q not found", base))
	case r.Method == http.MethodGet:
		json.NewEncoder(w).Encode(s.objects[base])
	case r.Method == http.MethodDelete:
		s.put(base, s.objects[base], "DELETED")
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		if v, given := meta(in)["resourceVersion"]; given && v != meta(s.objects[base])["resourceVersion"] {
			refuse(w, 409, "the object has been modified")
			return
		}
		s.put(base, merge(s.objects[base], in).(map[string]any), "MODIFIED")
		json.NewEncoder(w).Encode(s.objects[base])
	default:
		refuse(w, 405, r.Method+" is not served for "+path)
	}
}

// split takes a subresource off a path.
func split(path string) (base, sub string) {
	for _, sub := range []string{"status", "eviction"} {
		if base, found := strings.CutSuffix(path, "/"+sub); found {
			return base, sub
		}
	}
	return path, ""
}

func meta(o map[string]any) map[string]any {
	m, _ := o["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	return m
}

// merge is RFC 7396.
func merge(into, patch any) any {
	p, is := patch.(map[string]any)
	if !is {
		return patch
	}
	old, _ := into.(map[string]any)
	out := map[string]any{}
	for k, v := range old {
		out[k] = v
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = merge(out[k], v)
		}
	}
	return out
}

func (s *apiServer) put(path string, o map[string]any, kind string) {
	s.version++
	o = merge(map[string]any{}, o).(map[string]any)
	meta(o)["resourceVersion"] = strconv.FormatInt(s.version, 10)
	if s.objects[path] = o; kind == "DELETED" {
		delete(s.objects, path)
	}
	if strings.HasPrefix(path, "/api/v1/nodes/") {
		s.log = append(s.log, event{s.version, kind, o})
		close(s.news)
		s.news = make(chan struct{})
	}
}

// list answers page by page, two objects at once at most, as a real one may.
func (s *apiServer) list(w http.ResponseWriter, r *http.Request, path string) {
	kind := path[strings.LastIndex(path, "/")+1:]
	if !slices.Contains([]string{"nodes", "pods"}, kind) {
		refuse(w, 404, "the server could not find the requested resource")
		return
	}
	field, of, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	var paths []string
	for at, o := range s.objects {
		spec, _ := o["spec"].(map[string]any)
		if strings.Contains(at, "/"+kind+"/") && (field == "" || field == "spec.nodeName" && spec["nodeName"] == of) && at > r.URL.Query().Get("continue") {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	next, items := "", []any{}
	for i, at := range paths {
		if i == 2 {
			next = paths[1]
			break
		}
		items = append(items, s.objects[at])
	}
	json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10), "continue": next}, "items": items})
}

// watch streams for a moment only, so that the reader has to come again.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	out, end := json.NewEncoder(w), time.After(300*time.Millisecond)
	w.WriteHeader(http.StatusOK)
	s.mu.Lock()
	s.watches++
	if s.watches == 3 { // the reader's version is too old
		s.mu.Unlock()
		out.Encode(map[string]any{"type": "ERROR", "object": map[string]any{"kind": "Status", "code": 410}})
		return
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		for _, e := range s.log {
			if e.version > after {
				after = e.version
				out.Encode(map[string]any{"type": e.kind, "object": e.object})
			}
		}
		out.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"metadata": map[string]any{"resourceVersion": strconv.FormatInt(after, 10)}}})
		news := s.news
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// evict marks a pod as going, unless its budget allows none. A kubelet ends it.
func (s *apiServer) evict(w http.ResponseWriter, path string, in map[string]any) {
	p := s.objects[path]
	if p == nil {
		refuse(w, 404, "pods not found")
		return
	}
	if o, _ := in["deleteOptions"].(map[string]any); in["kind"] != "Eviction" || in["apiVersion"] != "policy/v1" || o["preconditions"].(map[string]any)["uid"] != meta(p)["uid"] {
		refuse(w, 409, "the pod is another one")
		return
	}
	for at, b := range s.objects {
		if !strings.Contains(at, "/poddisruptionbudgets/") {
			continue
		}
		labels, _ := meta(p)["labels"].(map[string]any)
		for k, v := range b["spec"].(map[string]any)["selector"].(map[string]any)["matchLabels"].(map[string]any) {
			if labels[k] != v {
				continue
			}
			st, _ := b["status"].(map[string]any)
			if n, _ := st["disruptionsAllowed"].(float64); n < 1 {
				refuse(w, 429, "Cannot evict pod as it would violate the pod's disruption budget.", "The disruption budget "+meta(b)["name"].(string)+" needs 1 healthy pods and has 1 currently")
				return
			}
		}
	}
	meta(p)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	s.put(path, p, "MODIFIED")
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "status": "Success"})
}
