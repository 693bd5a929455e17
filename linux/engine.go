package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	engineWithin = 2 * time.Minute
	pullWithin   = 30 * time.Minute
	// stopGrace is how many seconds a container has to end by itself.
	stopGrace = "10"
)

// An engine is a container runtime by its HTTP API, of which Podman speaks the
// part that is used here as Docker does: docs.docker.com/engine/api, 1.41. Paths
// carry no version, because each release drops old ones.
type engine struct {
	socket string
	client *http.Client
}

// engineSockets are where the runtimes listen.
var engineSockets = []string{"/run/docker.sock", "/run/podman/podman.sock"}

// findEngine is the runtime that listens on this machine; Docker when both do.
func findEngine(sockets []string) (*engine, error) {
	for _, socket := range sockets {
		if st, err := os.Stat(socket); err == nil && st.Mode()&os.ModeSocket != 0 {
			return newEngine(socket), nil
		}
	}
	for _, program := range []string{"dockerd", "podman"} {
		if _, err := exec.LookPath(program); err == nil {
			return nil, fmt.Errorf("%s is installed and listens neither at %s; its service (docker.service, or podman.socket) must be declared before its containers", program, strings.Join(sockets, " nor at "))
		}
	}
	return nil, errNoRuntime
}

var errNoRuntime = errors.New("this machine has no container runtime; declare a package (docker.io, or podman) and its service (docker.service, or podman.socket) before its containers")

func newEngine(socket string) *engine {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &engine{socket, &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConns: 1, IdleConnTimeout: 10 * time.Second}}}
}

// An engineError is what a runtime says when it refuses.
type engineError struct {
	status  int
	message string
}

func (e *engineError) Error() string { return e.message }

func refusedWith(err error, status int) bool {
	var e *engineError
	return errors.As(err, &e) && e.status == status
}

// call asks the runtime, and reads its answer into one, if that is wanted.
func (e *engine) call(method, path string, query url.Values, body, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineWithin)
	defer cancel()
	res, err := e.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if answer == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(res.Body, 16<<20)).Decode(answer)
}

func (e *engine) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	u := url.URL{Scheme: "http", Host: "engine", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the container runtime at %s does not answer: %w", e.socket, errors.Unwrap(err))
	}
	if res.StatusCode < 400 {
		return res, nil
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var said struct{ Message string }
	if json.Unmarshal(b, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(b))
	}
	return nil, &engineError{res.StatusCode, said.Message}
}

// inspect is a container by its name, nil when there is none. The runtime finds
// one by the start of its id, too; that is not meant.
func (e *engine) inspect(name string) (*instance, error) {
	i := &instance{}
	err := e.call("GET", "/containers/"+name+"/json", nil, nil, i)
	if refusedWith(err, http.StatusNotFound) || err == nil && strings.TrimPrefix(i.Name, "/") != name {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("container %s cannot be looked at: %w", name, err)
	}
	return i, nil
}

// imageConfig is what an image gives to its containers.
type imageConfig struct{ Cmd, Env []string }

// image is an image's configuration; empty when it is gone.
func (e *engine) image(name string) (c imageConfig, there bool, err error) {
	var answer struct{ Config imageConfig }
	err = e.call("GET", "/images/"+name+"/json", nil, nil, &answer)
	if refusedWith(err, http.StatusNotFound) {
		return c, false, nil
	}
	return answer.Config, err == nil, err
}

// pull fetches an image. The runtime tells of its progress line by line, and
// of a failure in the middle of it.
func (e *engine) pull(image string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pullWithin)
	defer cancel()
	from, tag := splitImage(image)
	res, err := e.send(ctx, "POST", "/images/create", url.Values{"fromImage": {from}, "tag": {tag}}, nil)
	if err != nil {
		return fmt.Errorf("image %s cannot be fetched: %w", image, err)
	}
	defer res.Body.Close()
	for in := json.NewDecoder(res.Body); ; {
		var line struct{ Error string }
		err := in.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("image %s: its download was cut short: %w", image, err)
		case line.Error != "":
			return fmt.Errorf("image %s cannot be fetched: %s", image, line.Error)
		}
	}
}

// splitImage takes the tag or digest from an image's name. Without one all tags
// would be fetched.
func splitImage(image string) (name, tag string) {
	if name, digest, is := strings.Cut(image, "@"); is {
		return name, digest
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}
