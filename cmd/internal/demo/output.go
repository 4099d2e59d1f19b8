package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/onceward/onceward/cmd/internal/progress"
)

// output writes lines, above the bar while a composition runs.
type output struct {
	out   io.Writer
	meter *progress.Meter
}

func (o *output) line(format string, args ...any) {
	fmt.Fprintf(o.meter.Over(o.out), format+"\n", args...)
}

// event writes what happened, and when.
func (o *output) event(at time.Duration, format string, args ...any) {
	o.line("  %5.1fs  %s", at.Seconds(), fmt.Sprintf(format, args...))
}
