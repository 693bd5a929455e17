package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A kubeconfig is the part of such a file that is read: where the API server is,
// and how to come before it.
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster server
	}
	Users []struct {
		Name string
		User user
	}
}

type server struct {
	Server     string
	CAFile     string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
}

type user struct {
	CertFile  string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	KeyFile   string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Token     string
	TokenFile string         `yaml:"tokenFile"`
	Exec      map[string]any // a program that makes credentials
}

// Open reads a kubeconfig file and makes a client of the cluster that context
// names, or that is its current one. Programs that make credentials, and servers
// whose certificate is not to be looked at, are refused.
func Open(file, context string) (*Cluster, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	s, u, err := parse(text, context)
	if err == nil {
		var c *Cluster
		if c, err = connect(s, u, filepath.Dir(file)); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
}

func parse(text []byte, context string) (s server, u user, err error) {
	var k kubeconfig
	if yaml.Unmarshal(text, &k) != nil {
		return s, u, errors.New("this is not what a kubeconfig looks like") // what is wrong would repeat secrets
	}
	if context == "" {
		context = k.Current
	}
	for _, at := range k.Contexts {
		if at.Name != context {
			continue
		}
		for _, cluster := range k.Clusters {
			for _, person := range k.Users {
				if cluster.Name == at.Context.Cluster && person.Name == at.Context.User {
					return cluster.Cluster, person.User, nil
				}
			}
		}
		return s, u, fmt.Errorf("its context %q names a cluster or a user that is not in it", context)
	}
	return s, u, fmt.Errorf("it has no context %q", context)
}

// connect makes the client. What is named by a path is beside the kubeconfig.
func connect(s server, u user, dir string) (*Cluster, error) {
	at, err := url.Parse(s.Server)
	switch {
	case err != nil || at.Scheme != "https" || at.Host == "":
		return nil, fmt.Errorf("its server %.80q is not https://HOST:PORT", s.Server)
	case s.Insecure:
		return nil, errors.New("it says insecure-skip-tls-verify: give its certificate-authority instead")
	case u.Exec != nil:
		return nil, errors.New("its user comes from a program (exec), which is not supported: give a service account's token, or a client certificate")
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	ca, err := content(s.CAData, s.CAFile, dir)
	if err != nil {
		return nil, fmt.Errorf("its certificate authority: %w", err)
	}
	if ca != nil {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("its certificate authority is no certificate in PEM")
		}
	}
	cert, err := content(u.CertData, u.CertFile, dir)
	if err != nil {
		return nil, fmt.Errorf("its client certificate: %w", err)
	}
	key, err := content(u.KeyData, u.KeyFile, dir)
	if err != nil {
		return nil, fmt.Errorf("its client key: %w", err)
	}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("its client certificate and key do not go together: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	c := &Cluster{base: strings.TrimSuffix(s.Server, "/"), token: u.Token, http: &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: drainsAtOnce, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: callTimeout}}}
	if u.TokenFile != "" {
		c.tokenFile = beside(dir, u.TokenFile)
	}
	if cert == nil && c.token == "" && c.tokenFile == "" {
		return nil, errors.New("its user has neither a token nor a client certificate")
	}
	return c, nil
}

func beside(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// content is what a kubeconfig holds itself, or names; nil: neither.
func content(data, file, dir string) ([]byte, error) {
	switch {
	case data != "":
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, errors.New("it is not base64")
		}
		return b, nil
	case file != "":
		return os.ReadFile(beside(dir, file))
	}
	return nil, nil
}
