package main

import (
	"testing"
	"time"
)

// A lifetime that is misread must never become a longer one: 0 seconds mean for
// ever to the API, and a product that overflows may come out as anything.
func TestParseDays(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"1s": time.Second, "12h": 12 * time.Hour, "90d": 90 * 24 * time.Hour, "106751d": 106751 * 24 * time.Hour,
		// refused
		"": 0, "0": 0, "0d": 0, "-1h": 0, "-1d": 0, "d": 0, "1.5d": 0, "30": 0, "\u00fc": 0,
		"1ns": 0, "999ms": 0,
		"106752d": 0, "1000000d": 0, "99999999999d": 0, "-9223372036854775808d": 0, "99999999999999999999d": 0,
	} {
		got, err := parseDays(in)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseDays(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
}
