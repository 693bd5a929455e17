//go:build linux

package measure

import (
	"os"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 3: {3}, 2.5: {4, 1, 3, 2}, 2: {9, 1, 2}} {
		if got := Median(of); got != want {
			t.Errorf("the median of %v is %v", of, got)
		}
	}
}

func TestCPU(t *testing.T) {
	before := CPU(os.Getpid())
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
		_ = CPU(os.Getpid())
	}
	if CPU(os.Getpid()) <= before {
		t.Error("50 ms of work have used nothing")
	}
	if CPU(1<<30) != 0 {
		t.Error("no process has used something")
	}
}
