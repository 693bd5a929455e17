package enrol

import (
	"bytes"
	"strings"
	"testing"
)

func some(url string) Token {
	return Token{URL: url, ID: "q2qywnguwzb4", Secret: bytes.Repeat([]byte{0xfb}, 32), Fingerprint: bytes.Repeat([]byte{0xa5}, 32)}
}

func word(t testing.TB, tok Token) string {
	t.Helper()
	s, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func same(a, b Token) bool {
	return a.URL == b.URL && a.ID == b.ID && bytes.Equal(a.Secret, b.Secret) && bytes.Equal(a.Fingerprint, b.Fingerprint)
}

func TestThereAndBack(t *testing.T) {
	for _, url := range []string{"https://127.0.0.1:8443", "https://[2001:db8::1]:8443", "https://muster.example.org", "https://" + strings.Repeat("a", 255)} {
		tok := some(url)
		s := word(t, tok)
		if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || !strings.HasPrefix(s, Prefix) {
			t.Errorf("%q is not one plain word", s)
		}
		for _, copied := range []string{s, " " + s + "\n", s[:40] + "\r\n" + s[40:]} {
			if got, err := Decode(copied); err != nil || !same(got, tok) {
				t.Errorf("%q: %+v, %v", copied, got, err)
			}
		}
	}
}

// The word is spelled out once, so that it never changes by accident.
func TestTheWord(t *testing.T) {
	const want = "musen1_-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_ulpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpXEycXl3bmd1d3piNA4xMjcuMC4wLjE6ODQ0MxHMJwY"
	if s := word(t, some("https://127.0.0.1:8443")); s != want {
		t.Errorf("spelled %s", s)
	}
}

// TestCutCopies: no beginning of a token passes, and no token with one
// character changed.
func TestCutCopies(t *testing.T) {
	tok := some("https://10.0.0.1:8443")
	s := word(t, tok)
	secret := s[len(Prefix) : len(Prefix)+20]
	for n := range len(s) {
		if _, err := Decode(s[:n]); err == nil {
			t.Fatalf("a copy of %d characters passes", n)
		} else if strings.Contains(err.Error(), secret) {
			t.Fatalf("the error tells the secret: %v", err)
		}
	}
	for i := len(Prefix); i < len(s); i++ {
		for _, c := range []byte("Az-_09") {
			changed := s[:i] + string(c) + s[i+1:]
			if _, err := Decode(changed); err == nil && changed != s {
				t.Fatalf("%q in place %d passes", c, i)
			}
		}
	}
	if _, err := Decode(s + "A"); err == nil {
		t.Error("a longer word passes")
	}
	if _, err := Decode(strings.ToLower(s)); err == nil {
		t.Error("a word in lower case passes")
	}
}

func TestOtherWords(t *testing.T) {
	for s, says := range map[string]string{
		"": "no enrolment token came", " \n": "no enrolment token came", "K7P-2QX": "begins with", "mus_abcdefghijkl_x": "begins with", "musen2_AAAA": "version 2", "musen_AAAA": "begins with", "musen1_": "cut short",
	} {
		if _, err := Decode(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestNotEncoded(t *testing.T) {
	for name, change := range map[string]func(*Token){
		"http":              func(t *Token) { t.URL = "http://a:1" },
		"path":              func(t *Token) { t.URL = "https://a:1/x" },
		"user":              func(t *Token) { t.URL = "https://u@a:1" },
		"no host":           func(t *Token) { t.URL = "https://" },
		"long":              func(t *Token) { t.URL = "https://" + strings.Repeat("a", 256) },
		"id":                func(t *Token) { t.ID = "Q2QYWNGUWZB4" },
		"short secret":      func(t *Token) { t.Secret = t.Secret[1:] },
		"short fingerprint": func(t *Token) { t.Fingerprint = nil },
	} {
		tok := some("https://a:1")
		change(&tok)
		if s, err := tok.Encode(); err == nil {
			t.Errorf("%s: %s", name, s)
		}
	}
}

// FuzzDecode: what passes is spelled as it was read.
func FuzzDecode(f *testing.F) {
	f.Add(word(f, some("https://127.0.0.1:8443")))
	f.Add(word(f, some("https://[2001:db8::1]:8443")))
	f.Add("musen1_AAAA")
	f.Add("musen9_AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := Decode(s)
		if err != nil {
			return
		}
		if again, err := tok.Encode(); err != nil || again != strings.Join(strings.Fields(s), "") {
			t.Errorf("%q is read, and spelled %q, %v", s, again, err)
		}
	})
}
