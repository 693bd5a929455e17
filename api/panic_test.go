package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"muster.internal/api"
)

type panicking struct{ *fake }

func (panicking) Ready(context.Context) error { panic("on purpose") }

// TestPanicIsFound: who asked hears of a failure, and the log says where.
func TestPanicIsFound(t *testing.T) {
	var log bytes.Buffer
	w := send(api.New(panicking{new(fake)}, api.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}), "GET", "/readyz", "", "")
	if w.Code != 500 || strings.Contains(w.Body.String(), "on purpose") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "on purpose") || !strings.Contains(log.String(), "panicking.Ready") {
		t.Errorf("the log does not say where:\n%s", log.String())
	}
}
