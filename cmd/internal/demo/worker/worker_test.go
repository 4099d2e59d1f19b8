package worker

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// TestRunRefuses: a worker that was started by hand or with bad input says why it ends.
func TestRunRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "read configuration: EOF",
		"hello\n":                        "read configuration: invalid character",
		"{\"Composition\":\"magic\"}\n":  `unknown composition "magic"`,
		"{\"Composition\":\"atomic\"}\n": "is empty", // the namespace
	} {
		rest, _ := io.Pipe() // the end of the input would end this process
		err := run(t.Context(), io.MultiReader(strings.NewReader(in), endOf(in, rest)), io.Discard)
		assert.ErrorContains(t, err, want, in)
	}
}

func endOf(in string, rest io.Reader) io.Reader {
	if in == "" {
		return strings.NewReader("")
	}
	return rest
}

// TestDuplicate: a worker explains duplicates like a Deduper does.
func TestDuplicate(t *testing.T) {
	l, err := ledger.Open(t.TempDir() + "/ledger.db")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // the test has ended
	require.NoError(t, l.Create(t.Context()))
	var sent []Event
	w := &worker{ledger: l, cfg: Config{Composition: Atomic},
		send: func(e Event) { sent = append(sent, e) }}
	w.generation.Store(5)
	require.NoError(t, ledger.Append(t.Context(), l, string(Atomic),
		ledger.Row{ID: "a", Partition: 1, Offset: 10, Generation: 5}))
	for _, test := range []struct {
		name       string
		generation int32
		partition  int32
		offset     int64
		want       driver.Cause
	}{
		{"same place, same generation", 5, 1, 10, driver.BrokerRedelivery},
		{"same place, next generation", 6, 1, 10, driver.RebalanceReplay},
		{"another offset", 5, 1, 11, driver.ProducerRetry},
		{"another partition", 6, 2, 10, driver.ProducerRetry},
	} {
		w.generation.Store(test.generation)
		m := &kafkaadapter.Message{ID: "a", Partition: test.partition, Offset: test.offset}
		got, err := w.duplicate(t.Context(), l, m)
		require.NoError(t, err, test.name)
		assert.Equal(t, test.want, got, test.name)
		assert.Equal(t, Event{Kind: Skipped, ID: "a", Cause: test.want}, sent[len(sent)-1])
	}
}
