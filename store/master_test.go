package store

import (
	"bytes"
	"errors"
	"testing"
)

// TestAnotherMasterKey is refused, on both engines, until it is adopted.
func TestAnotherMasterKey(t *testing.T) {
	for name, url := range map[string]func(*testing.T) string{
		"sqlite": func(t *testing.T) string { return sqliteURL(t) }, "postgres": func(t *testing.T) string { return postgresURL(t) }} {
		t.Run(name, func(t *testing.T) {
			o := Options{URL: url(t), MasterKey: master} // which made the template
			other := o
			other.MasterKey = bytes.Repeat([]byte{2}, 32)
			try := func(o Options) error {
				s, err := Open(t.Context(), o)
				if err == nil {
					err = s.Close()
				}
				return err
			}
			for range 2 {
				if err := try(o); err != nil {
					t.Fatal(err)
				}
			}
			if err := try(other); !errors.Is(err, errMasterKey) {
				t.Errorf("another key: %v", err)
			}
			if err := AdoptMaster(t.Context(), other, start, ada); err != nil {
				t.Fatal(err)
			}
			if err := try(other); err != nil {
				t.Errorf("the key that was adopted: %v", err)
			}
			if err := try(o); !errors.Is(err, errMasterKey) {
				t.Errorf("the key that was left: %v", err)
			}
		})
	}
}
