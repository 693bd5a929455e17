//go:build linux

package main

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/bench/plane"
	"muster.internal/client"
	"muster.internal/enrol"
)

// machine is the document of one: a server with six disks and four ports.
func machine(i int) (uuid string, sysinfo json.RawMessage) {
	uuid = fmt.Sprintf("4c4c4544-0010-4080-8001-%012x", i+1)
	nics, disks := map[string]any{}, map[string]any{}
	for n := range 4 {
		nics[fmt.Sprintf("eno%d", n+1)] = map[string]any{"MAC Address": fmt.Sprintf("02:4%d:00:%02x:%02x:%02x", n, i>>16&255, i>>8&255, i&255), "Link Status": "up", "NIC Names": []string{"external"}}
	}
	for n := range 6 {
		disks[fmt.Sprintf("nvme%dn1", n)] = map[string]any{"Size in GB": 3840, "Model": "a drive of four terabytes", "Serial": fmt.Sprintf("S64H%06d%02d", i, n)}
	}
	sysinfo, err := json.Marshal(map[string]any{"UUID": uuid, "Hostname": fmt.Sprintf("n%d", i), "Manufacturer": "A maker", "Product": "A server of two units",
		"Serial Number": fmt.Sprintf("SN%08d", i), "CPU Total Cores": 128, "MiB of Memory": "524288", "Network Interfaces": nics, "Disks": disks})
	if err != nil {
		panic(err) // it is the same document each time
	}
	return uuid, sysinfo
}

// roundOfMusterd has heartbeats first, while there is nothing else to be written.
func roundOfMusterd(ctx context.Context, s settings) (registered, beats work, err error) {
	m, err := plane.Start(ctx, s.musterd)
	if err != nil {
		return registered, beats, err
	}
	defer m.Close()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m.CA) {
		return registered, beats, errors.New("its authority cannot be read")
	}
	url := m.URL()
	key, err := approved(ctx, m)
	if err != nil {
		return registered, beats, err
	}
	heartbeats := load{url: url + "/v1/agent/heartbeat", token: key, roots: roots, count: s.beats, body: func(int) []byte { return []byte("{}") }}
	if _, err := heartbeats.put(ctx, m.Pid()); err != nil {
		return registered, beats, err
	}
	before, err := settled(ctx, m.Pid()) // what was made at the first start is on the disk by now
	if err != nil {
		return registered, beats, err
	}
	if beats, err = heartbeats.put(ctx, m.Pid()); err != nil {
		return registered, beats, err
	}
	after, err := written(m.Pid())
	if pages := (after - before) >> 12; err == nil && pages > int64(s.beats)/100 {
		err = fmt.Errorf("%d heartbeats wrote %d pages: only when machines were last seen is kept, together, at a tick", s.beats, pages)
	}
	if err != nil {
		return registered, beats, err
	}
	registered, err = load{url: url + "/v1/agent/register", roots: roots, count: s.machines, body: func(i int) []byte {
		uuid, sysinfo := machine(i)
		text, err := json.Marshal(muster.RegisterRequest{ServerUUID: uuid, Hostname: fmt.Sprintf("n%d", i), Sysinfo: sysinfo})
		if err != nil {
			panic(err)
		}
		return text
	}}.put(ctx, m.Pid())
	if err != nil {
		return registered, beats, err
	}
	return registered, beats, verify(ctx, m, s.machines)
}

// verify asks whether each registration is kept, with an entry of the audit.
func verify(ctx context.Context, m *plane.Musterd, want int) error {
	found := 0
	for after := int64(0); ; {
		page, err := m.Admin.Audit(ctx, muster.AuditFilter{After: after, Limit: 1000})
		if err != nil {
			return err
		}
		for _, e := range page {
			if after = e.Seq; e.Action == "register" {
				found++
			}
		}
		if len(page) == 0 {
			break
		}
	}
	if found != want {
		return fmt.Errorf("%d registrations were answered, and the audit has %d", want, found)
	}
	return nil
}

// approved lets one more machine in, for its key.
func approved(ctx context.Context, m *plane.Musterd) (key string, err error) {
	issued, err := m.Admin.IssueEnrolmentToken(ctx, muster.NewEnrolmentToken{})
	if err != nil {
		return "", err
	}
	t, err := enrol.Decode(issued.Token)
	if err != nil {
		return "", err
	}
	anyone, err := m.Client("", client.Trust{CA: m.CA})
	if err != nil {
		return "", err
	}
	uuid, sysinfo := machine(1 << 20)
	reply, err := anyone.Enrol(ctx, muster.EnrolRequest{TokenID: t.ID, Secret: base64.RawURLEncoding.EncodeToString(t.Secret), Nonce: fmt.Sprintf("%032x", 1), ServerUUID: uuid, Hostname: "beats", Sysinfo: sysinfo})
	return reply.APIKey, err
}

// written is how many bytes a process has had written to disks (proc(5), io).
func written(pid int) (bytes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, is := strings.CutPrefix(line, "write_bytes: "); is {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, errors.New("the kernel does not count what processes write")
}

// settled waits until nothing was written for two ticks of musterd's clocks.
func settled(ctx context.Context, pid int) (bytes int64, err error) {
	for since := time.Now(); time.Since(since) < 11*time.Second; {
		now, err := written(pid)
		if err != nil {
			return 0, err
		}
		if now != bytes {
			bytes, since = now, time.Now()
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return bytes, nil
}

func roundOfEtcd(ctx context.Context, s settings) (work, error) {
	dir, err := os.MkdirTemp("", "muster-bench-etcd")
	if err != nil {
		return work{}, err
	}
	defer os.RemoveAll(dir)
	clients, peers := free(), free()
	c := exec.Command(s.etcd, "--data-dir", dir, "--log-level", "error", "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	c.Stderr, c.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return work{}, err
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	if err := answers(ctx, clients+"/health"); err != nil {
		return work{}, err
	}
	encode := base64.StdEncoding.EncodeToString
	return load{url: clients + "/v3/kv/put", count: s.machines, body: func(i int) []byte {
		uuid, sysinfo := machine(i)
		return fmt.Appendf(nil, `{"key":%q,"value":%q}`, encode([]byte("/machines/"+uuid)), encode(sysinfo))
	}}.put(ctx, c.Process.Pid)
}

func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // loopback has no port left
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func answers(ctx context.Context, url string) (err error) {
	for range 300 {
		var r *http.Response
		if r, err = http.Get(url); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("nothing answers: %w", err)
}
