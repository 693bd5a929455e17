package store

import (
	"crypto/sha512"
	"fmt"
	"regexp"
	"strings"
)

// cryptHash is what we keep of a root password: SHA-512 crypt(3), of letters
// that a boot loader, a shell and sed take as they are.
var cryptHash = regexp.MustCompile(`^\$6\$[./0-9A-Za-z]{1,16}\$[./0-9A-Za-z]{86}$`)

const (
	cryptLetters = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// cryptRounds is the default, which a hash need not spell: SmartOS cuts a
	// boot property at its second equal sign, so there is no rounds=N.
	cryptRounds = 5000
)

// sha512crypt is U. Drepper's "Unix crypt using SHA-256 and SHA-512", as every
// libc has it. The salt is at most 16 of cryptLetters.
func sha512crypt(password, salt string, rounds int) string {
	p, s := []byte(password), []byte(salt)
	b := sum(p, s, p)
	a := append(append([]byte{}, p...), s...)
	a = append(a, stretch(b, len(p))...)
	for n := len(p); n > 0; n >>= 1 {
		if n&1 == 1 {
			a = append(a, b...)
		} else {
			a = append(a, p...)
		}
	}
	c := sum(a)
	var ps, ss []byte
	for range p {
		ps = append(ps, p...)
	}
	ps = stretch(sum(ps), len(p))
	for range 16 + int(c[0]) {
		ss = append(ss, s...)
	}
	ss = stretch(sum(ss), len(s))
	for i := range rounds {
		var in []byte
		if i&1 == 1 {
			in = append(in, ps...)
		} else {
			in = append(in, c...)
		}
		if i%3 != 0 {
			in = append(in, ss...)
		}
		if i%7 != 0 {
			in = append(in, ps...)
		}
		if i&1 == 1 {
			in = append(in, c...)
		} else {
			in = append(in, ps...)
		}
		c = sum(in)
	}
	out := new(strings.Builder)
	out.WriteString("$6$")
	if rounds != cryptRounds {
		fmt.Fprintf(out, "rounds=%d$", rounds)
	}
	out.WriteString(salt + "$")
	// Three bytes at a time, in the order that rotates through the thirds.
	for i := range 21 {
		x, y, z := i, i+21, i+42
		switch i % 3 {
		case 1:
			x, y, z = y, z, x
		case 2:
			x, y, z = z, x, y
		}
		letters(out, uint(c[x])<<16|uint(c[y])<<8|uint(c[z]), 4)
	}
	letters(out, uint(c[63]), 2)
	return out.String()
}

func sum(parts ...[]byte) []byte {
	h := sha512.New()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// stretch repeats a sum to n bytes.
func stretch(b []byte, n int) (out []byte) {
	for len(out) < n {
		out = append(out, b[:min(len(b), n-len(out))]...)
	}
	return out
}

func letters(out *strings.Builder, v uint, n int) {
	for range n {
		out.WriteByte(cryptLetters[v&63])
		v >>= 6
	}
}
