package amqp

import "strings"

// Match tells whether a routing key fits a topic pattern (section 3.1.3.3):
// words are separated by dots, * stands for exactly one word, # for any number.
// The time it takes grows with the product of the two lengths, never faster.
func Match(pattern, key string) bool {
	p, k := strings.Split(pattern, "."), strings.Split(key, ".")
	if key == "" {
		k = nil // no key has no words, so that "#" alone fits it
	}
	if pattern == "" {
		p = nil
	}
	star, mark := -1, 0 // the last # and how much of the key it has eaten
	i, j := 0, 0
	for j < len(k) {
		switch {
		case i < len(p) && p[i] == "#":
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == "*" || p[i] == k[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == "#" {
		i++
	}
	return i == len(p)
}
