//go:build unix

package harness

import (
	"syscall"
	"time"
)

// ProcessCPU is the CPU time that this process has used, user and system.
func ProcessCPU() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
