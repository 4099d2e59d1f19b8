//go:build !unix

package harness

import "time"

// ProcessCPU is unknown here.
func ProcessCPU() time.Duration { return 0 }
