// Package credential keeps a machine's credential in a file: whole or not at
// all, and readable by its owner alone.
//
// It must never quote what is in the file, not even in an error.
package credential

import (
	"encoding/json"
	"fmt"
	"os"

	"muster.internal/durable"
	"muster.internal/setup"
)

// Store writes a credential to a file that only its owner can read.
func Store(path string, c setup.Credential) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return durable.Replace(path, append(b, '\n'), 0o600)
}

// Load reads one. An empty or torn file is an error, never a reason to register
// anew; the error does not quote it.
func Load(path string) (setup.Credential, error) {
	var c setup.Credential
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if json.Unmarshal(b, &c) != nil || c.APIKey == "" || c.URL == "" || c.ServerUUID == "" {
		return setup.Credential{}, fmt.Errorf("%s is not a whole credential", path)
	}
	return c, nil
}
