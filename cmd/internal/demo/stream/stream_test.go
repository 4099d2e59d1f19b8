package stream

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMakeIsRepeatable(t *testing.T) {
	cfg := Config{Seed: 7, Partitions: 6, Duplicates: 12}
	a, b := Make(Payments(500, 7), cfg), Make(Payments(500, 7), cfg)
	assert.Equal(t, b, a, "the same seed gave two streams")
	cfg.Seed = 8
	assert.False(t, reflect.DeepEqual(a, Make(Payments(500, 8), cfg)),
		"another seed gave the same stream")
}

// TestMakeDuplicates checks each way of repeating against the message it repeats.
func TestMakeDuplicates(t *testing.T) {
	const n = 1000
	messages := Make(Payments(n, 1), Config{Seed: 1, Partitions: 6, Duplicates: 12})
	place := make(map[string]int)
	home := make(map[string]int32)
	kinds := make(map[Kind]int)
	for i, m := range messages {
		kinds[m.Kind]++
		first, again := place[m.ID]
		switch {
		case (m.Kind == Original) == again:
			t.Fatalf("message %d, kind %d, of an id that was there before: %v", i, m.Kind, again)
		case m.Kind == Original:
			place[m.ID], home[m.ID] = i, m.Partition
		case (m.Kind == Moved) == (m.Partition == home[m.ID]):
			t.Errorf("message %d, kind %d, in partition %d; the original is in %d", i, m.Kind,
				m.Partition, home[m.ID])
		case m.Kind == Late && (i < len(messages)*8/10 || first > len(messages)*6/10):
			t.Errorf("late message %d repeats message %d of %d", i, first, len(messages))
		case m.Kind != Late && i-first > 50:
			t.Errorf("message %d, kind %d, repeats message %d: not soon", i, m.Kind, first)
		}
	}
	assert.Equal(t, n, kinds[Original], "%d originals, %d ids, want %d", kinds[Original],
		len(place), n)
	assert.Equal(t, n, len(place), "%d originals, %d ids, want %d", kinds[Original],
		len(place), n)
	for kind, least := range map[Kind]int{Retry: 80, Moved: 80, Late: 30} {
		assert.GreaterOrEqual(t, kinds[kind], least, "%d messages of kind %d, want at least %d",
			kinds[kind], kind, least)
	}
}

func TestMakeKeepsOrderOfKey(t *testing.T) {
	last := make(map[string]string)
	for _, m := range Make(Payments(500, 3), Config{Seed: 3, Partitions: 6, Duplicates: 50}) {
		if m.Kind == Original {
			require.Greater(t, m.ID, last[m.Key], "%s of %s comes after %s", m.ID, m.Key,
				last[m.Key])
			last[m.Key] = m.ID
		}
	}
}

func TestMakeWithoutDuplicates(t *testing.T) {
	records := []Record{{ID: "a", Key: "a"}, {ID: "b", Key: "b"}, {ID: "c", Key: "a"}}
	messages := Make(records, Config{Partitions: 1})
	require.Len(t, messages, 3)
	assert.Equal(t, Original, messages[2].Kind)
	assert.Equal(t, Original, messages[0].Kind)
	// no other partition to move to
	all := Make(records, Config{Partitions: 1, Duplicates: 100})
	assert.Len(t, all, 3+3+1, "%d messages of 3 records, each retried and one late", len(all))
	assert.Empty(t, Make(nil, Config{Partitions: 6, Duplicates: 50}), "a stream of nothing")
}
