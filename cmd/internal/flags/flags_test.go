package flags

import (
	"errors"
	"fmt"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/outbox"
)

func TestNamed(t *testing.T) {
	other := errors.New("another one")
	for want, err := range map[string]error{
		"-table is odd":  fmt.Errorf("made of: %w", &dedup.InputError{Field: "Table", Reason: "is odd"}),
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
