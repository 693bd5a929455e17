package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"muster.internal/linux"
)

// rootPassword fetches what was promised to this boot, once, and sets it in the
// initrd. It returns what a root file system is to have: without a promise no
// password, and nothing new when the promise was not kept. Errors never hold
// the URL: its nonce is a secret until it is used.
func (e *env) rootPassword(ctx context.Context, url string) string {
	if url == "" {
		return linux.NoPassword
	}
	hash, err := fetchOnce(ctx, url)
	if err == nil {
		err = linux.SetRootPassword("/etc", hash)
	}
	if err != nil {
		e.say("it goes on without its root password: %v", err)
		return ""
	}
	e.say("its root password is set")
	return hash
}

func fetchOnce(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", errors.New("the boot server's promise cannot be read")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", errors.New("the boot server does not answer")
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if err != nil {
		return "", errors.New("the boot server's answer was cut short")
	}
	said := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the boot server says: %s", said)
	}
	return said, nil
}
