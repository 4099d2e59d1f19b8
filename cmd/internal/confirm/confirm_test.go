package confirm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES \n": true, "yes": true, "": false,
		"\n": false, "n\n": false, "yess\n": false, "\ny\n": false} {
		var out bytes.Buffer
		got, err := Ask(t.Context(), "Drop it?", strings.NewReader(answer), &out)
		if err != nil || got != want || !strings.Contains(out.String(), "Drop it? [y/N] ") {
			t.Errorf("%q: %t, %v, %q", answer, got, err, out.String())
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	in, terminal := io.Pipe()
	t.Cleanup(func() { _ = terminal.Close() })
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if yes, err := Ask(ctx, "Drop it?", in, io.Discard); yes || !errors.Is(err, gone) {
		t.Errorf("%t, %v", yes, err)
	}
}
