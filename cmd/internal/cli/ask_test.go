package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAsk(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES \n": true, "yes": true, "": false,
		"\n": false, "n\n": false, "yess\n": false, "\ny\n": false} {
		var out bytes.Buffer
		got, err := Ask(t.Context(), "Drop it?", strings.NewReader(answer), &out)
		require.NoError(t, err)
		assert.Equal(t, want, got, "%q", answer)
		assert.Equal(t, "\nDrop it? [y/N] ", out.String())
	}
}

func TestNobodyAnswers(t *testing.T) {
	in, terminal := io.Pipe()
	t.Cleanup(func() { _ = terminal.Close() })
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	yes, err := Ask(ctx, "Drop it?", in, io.Discard)
	assert.False(t, yes)
	assert.ErrorIs(t, err, gone)
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB",
		1 << 30: "1.0 GiB", 1 << 60: "1024.0 PiB"} {
		assert.Equal(t, want, Size(bytes))
	}
}
