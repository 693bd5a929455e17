// Command broken is a muster-host that cannot live: it dies or hangs.
package main

import (
	"os"
	"syscall"
	"time"
)

var how string // set by the linker

func main() {
	if how == "dies" {
		syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	}
	time.Sleep(time.Hour)
}
