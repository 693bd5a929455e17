package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is asked of an API server.
const (
	callTimeout = 30 * time.Second
	watchFor    = 5 * time.Minute // then it is asked for again
	pageSize    = 500
	answerMax   = 64 << 20
)

// A Cluster is the API of one Kubernetes cluster, as far as it is used here.
type Cluster struct {
	base, token, tokenFile string
	http                   *http.Client
}

// A meta is the part of an object's metadata that is looked at.
type meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Deleted         *time.Time        `json:"deletionTimestamp,omitempty"`
	Owners          []owner           `json:"ownerReferences,omitempty"`
}

type owner struct {
	Kind       string `json:"kind"`
	Controller bool   `json:"controller"`
}

type node struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Unschedulable bool `json:"unschedulable,omitempty"`
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses,omitempty"`
		Info struct {
			SystemUUID string `json:"systemUUID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type pod struct {
	Meta   meta `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// A status is how an API server says no.
type status struct {
	Code    int    `json:"-"`
	Message string `json:"message"`
	Details struct {
		Causes []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"causes"`
	} `json:"details"`
}

func (s *status) Error() string { return fmt.Sprintf("the API server says %d: %s", s.Code, s.Message) }

func (c *Cluster) send(ctx context.Context, method, path string, query url.Values, kind string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	token := c.token
	if c.tokenFile != "" { // it is written anew before it ends
		b, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("the token for the API server: %w", err)
		}
		token = strings.TrimSpace(string(b))
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "muster")
	if in != nil {
		r.Header.Set("Content-Type", kind)
	}
	a, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the API server at %s does not answer: %w", c.base, err)
	}
	if a.StatusCode >= 300 {
		defer a.Body.Close()
		s := &status{Code: a.StatusCode}
		b, _ := io.ReadAll(io.LimitReader(a.Body, 64<<10))
		if json.Unmarshal(b, s) != nil || s.Message == "" {
			s.Message = http.StatusText(a.StatusCode)
		}
		return nil, s
	}
	return a, nil
}

func (c *Cluster) call(ctx context.Context, method, path string, query url.Values, kind string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := c.send(ctx, method, path, query, kind, in)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(a.Body, answerMax))
		return err
	}
	if err := json.NewDecoder(io.LimitReader(a.Body, answerMax)).Decode(out); err != nil {
		return fmt.Errorf("the API server's answer to %s %s cannot be read: %w", method, path, err)
	}
	return nil
}

// every gives all objects of a list, page by page, and the version of the list.
func every[T any](ctx context.Context, c *Cluster, path string, query url.Values) (all []T, version string, err error) {
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		var l struct {
			Meta struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		if err := c.call(ctx, http.MethodGet, path, query, "", nil, &l); err != nil {
			return nil, "", err
		}
		all = append(all, l.Items...)
		if l.Meta.Continue == "" {
			return all, l.Meta.ResourceVersion, nil
		}
		query.Set("continue", l.Meta.Continue)
	}
}

func (c *Cluster) nodes(ctx context.Context) ([]node, string, error) {
	return every[node](ctx, c, "/api/v1/nodes", url.Values{})
}

// watch tells f of each change of a node after version, until the API server
// ends the watch. Gone: the node is deleted.
func (c *Cluster) watch(ctx context.Context, version string, f func(n node, gone bool)) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor+callTimeout)
	defer cancel()
	a, err := c.send(ctx, http.MethodGet, "/api/v1/nodes", url.Values{"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(int(watchFor / time.Second))}}, "", nil)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	d := json.NewDecoder(bufio.NewReader(a.Body))
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.Decode(&e); err != nil {
			return nil // it is over, however; what was missed is listed
		}
		var n node
		switch e.Type {
		case "ADDED", "MODIFIED", "DELETED":
			if err := json.Unmarshal(e.Object, &n); err != nil {
				return fmt.Errorf("the API server tells of a node that cannot be read: %w", err)
			}
			f(n, e.Type == "DELETED")
		case "ERROR": // the version is too old, most likely
			return nil
		}
	}
}

func (c *Cluster) pods(ctx context.Context, node string) ([]pod, error) {
	all, _, err := every[pod](ctx, c, "/api/v1/pods", url.Values{"fieldSelector": {"spec.nodeName=" + node}})
	return all, err
}

// cordoned is the annotation by which a node shows that it was us who cordoned
// it: what others cordoned stays so.
const cordoned = "muster.internal/cordoned"

// cordon lets nothing new come to a node, or lets it again. It is refused when
// the node changed since it was looked at.
func (c *Cluster) cordon(ctx context.Context, n node, claim string) error {
	var mark any // null takes it away
	if claim != "" {
		mark = claim
	}
	return c.call(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(n.Meta.Name), url.Values{}, "application/merge-patch+json", map[string]any{
		"metadata": map[string]any{"resourceVersion": n.Meta.ResourceVersion, "annotations": map[string]any{cordoned: mark}},
		"spec":     map[string]any{"unschedulable": claim != ""},
	}, nil)
}

// evict asks for a pod to go in good order. The API server refuses with 429
// while a disruption budget allows none.
func (c *Cluster) evict(ctx context.Context, p pod) error {
	return c.call(ctx, http.MethodPost, "/api/v1/namespaces/"+url.PathEscape(p.Meta.Namespace)+"/pods/"+url.PathEscape(p.Meta.Name)+"/eviction", url.Values{}, "application/json", map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]any{"name": p.Meta.Name, "namespace": p.Meta.Namespace},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": p.Meta.UID}},
	}, nil)
}
