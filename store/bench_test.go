package store

import (
	"sync/atomic"
	"testing"

	"muster.internal"
)

// BenchmarkRegister is a durable registration with its audit entry, by as many
// callers as wait at the same time.
func BenchmarkRegister(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": sqliteURL, "postgres": postgresURL} {
		b.Run(name, func(b *testing.B) {
			s := open(b, url(b))
			var n atomic.Int64
			b.SetParallelism(16)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if _, err := s.Register(b.Context(), start, nobody, boxNo(int(n.Add(1))&0xffff).request()); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkAuthenticate is what every request pays.
func BenchmarkAuthenticate(b *testing.B) {
	s := open(b, sqliteURL(b))
	k, err := s.CreateKey(b.Context(), start, ada, muster.NewKey{Scope: muster.ScopeFull})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Authenticate(b.Context(), start, k.Secret, ""); err != nil {
			b.Fatal(err)
		}
	}
}
