package credential_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/credential"
	"muster.internal/setup"
)

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "credential")
	want := setup.Credential{URL: "https://m", CA: "pem", APIKey: "mus_planted", ServerUUID: "00112233-4455-6677-8899-aabbccddeea1", Epoch: 3}
	for range 2 { // anew, and over the old one
		if err := credential.Store(file, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := credential.Load(file)
	if err != nil || got.APIKey != want.APIKey || got.Epoch != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	st, _ := os.Stat(file)
	dir, _ := os.Stat(filepath.Dir(file))
	entries, _ := os.ReadDir(filepath.Dir(file))
	if st.Mode().Perm() != 0o600 || dir.Mode().Perm() != 0o700 || len(entries) != 1 {
		t.Errorf("mode %v in a directory of mode %v with %d files", st.Mode(), dir.Mode(), len(entries))
	}
	for name, torn := range map[string]string{"empty": "", "torn": `{"url":"https://m","api_key":"mus_planted`, "no key": `{"url":"https://m","server_uuid":"x"}`} {
		os.WriteFile(file, []byte(torn), 0o600)
		if _, err := credential.Load(file); err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := credential.Store("/proc/no/such", want); err == nil || strings.Contains(err.Error(), "planted") {
		t.Errorf("where nothing can be written: %v", err)
	}
}
