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

// rootPassword fetches what was promised to this boot, once, and sets it.
// Errors never hold the URL: its nonce is a secret until it is used.
func rootPassword(ctx context.Context, _ *linux.Machine, url string) error {
	hash, err := fetchOnce(ctx, url)
	if err != nil {
		return err
	}
	return linux.SetRootPassword("/etc", hash)
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
