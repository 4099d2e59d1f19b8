//go:build !unix

package harness

import "time"

// processCPU is unknown here.
func processCPU() time.Duration { return 0 }
