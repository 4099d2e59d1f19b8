package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/outbox"
)

func TestNamed(t *testing.T) {
	other := errors.New("another one")
	for want, err := range map[string]error{
		"-table is odd": fmt.Errorf("made of: %w",
			&dedup.InputError{Field: "Table", Reason: "is odd"}),
		"-schema is odd": &outbox.InputError{Field: "Schema", Reason: "is odd"},
		"another one":    other,
	} {
		if got := Named(err); got.Error() != want {
			t.Errorf("%v became %v, want %s", err, got, want)
		}
	}
	if Named(nil) != nil {
		t.Error("nil became an error")
	}
}

// Operators think in days, which package time does not know.
func TestExplain(t *testing.T) {
	for args, want := range map[string]string{
		"-window 8d": "a duration is written as 30s, 10m or 192h",
		"-limit x":   `invalid value "x" for flag -limit: parse error`,
		"-widow 8h":  "not defined: -widow; onceward inflight -h lists the flags",
	} {
		f := flag.NewFlagSet("inflight", flag.ContinueOnError)
		f.Duration("window", 0, "")
		f.Int("limit", 0, "")
		if err := Parse(f, strings.Fields(args), "", io.Discard); err == nil ||
			!strings.HasSuffix(err.Error(), want) && !strings.Contains(err.Error(), want+",") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
