package control_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster.internal"
)

// cpu is the processor time that this process has used, server and client both.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHeartbeat asks over kept-alive TLS connections. Its "cpu-µs/op" is
// of client and server together.
func BenchmarkHeartbeat(b *testing.B) {
	p := newPlace(b, "")
	reply, err := p.anyone.Register(b.Context(), muster.RegisterRequest{ServerUUID: claimUUID, Hostname: "box", Sysinfo: json.RawMessage(`{"UUID":"` + claimUUID + `"}`)})
	p.ok(err)
	must(p, func(ctx context.Context) (muster.Registration, error) {
		return p.admin.ApproveCode(ctx, reply.ClaimCode)
	})
	key := p.poll(reply.PollToken).APIKey
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.c.CA())
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 16}
	defer tr.CloseIdleConnections()
	beat := func() error {
		req, err := http.NewRequest("POST", p.c.URL()+"/v1/agent/heartbeat", strings.NewReader(`{"version":"1"}`))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			return fmt.Errorf("%d %v", resp.StatusCode, err)
		}
		return nil
	}
	p.ok(beat())
	b.ResetTimer()
	start := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := beat(); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "cpu-µs/op")
}
