package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	const secret = "planted-secret"
	file := func(cluster, user, more string) string {
		f := filepath.Join(dir, "config")
		text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: c, user: nobody}}]\nclusters: [{name: c, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n" + more
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	const at, token = "server: 'https://k:6443'", "token: " + secret
	if c, err := Open(file(at, token, ""), ""); err != nil || c.base != "https://k:6443" || c.token != secret {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := Open(file(at, "tokenFile: t", ""), "a"); err != nil || c.tokenFile != filepath.Join(dir, "t") {
		t.Errorf("what it names is beside it: %+v, %v", c, err)
	}
	for name, c := range map[string]struct{ cluster, user, more, context, says string }{
		"no context":           {at, token, "", "z", `no context "z"`},
		"no such user":         {at, token, "", "b", "not in it"},
		"no YAML":              {at, token, "}: {", "", "not what a kubeconfig looks like"},
		"plain HTTP":           {"server: 'http://k'", token, "", "", "not https://"},
		"not to be verified":   {at + ", insecure-skip-tls-verify: true", token, "", "", "insecure-skip-tls-verify"},
		"a program":            {at, "exec: {command: aws}", "", "", "exec"},
		"nothing to show":      {at, "", "", "", "neither a token nor a client certificate"},
		"no certificate":       {at + ", certificate-authority-data: bm8=", token, "", "", "no certificate in PEM"},
		"no base64":            {at + ", certificate-authority-data: '%'", token, "", "", "not base64"},
		"no file":              {at + ", certificate-authority: nowhere", token, "", "", "no such file"},
		"a pair that is none":  {at, "client-certificate-data: bm8=, client-key-data: bm8=", "", "", "do not go together"},
		"a list for a mapping": {at, "token: [" + secret + "]", "", "", "not what a kubeconfig looks like"},
	} {
		_, err := Open(file(c.cluster, c.user, c.more), c.context)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none"), ""); err == nil {
		t.Error("there is no such file")
	}
}
