package stream

import (
	"reflect"
	"testing"
)

func TestMakeIsRepeatable(t *testing.T) {
	cfg := Config{Seed: 7, Partitions: 6, Duplicates: 12}
	a, b := Make(Payments(500, 7), cfg), Make(Payments(500, 7), cfg)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gave two streams")
	}
	cfg.Seed = 8
	if reflect.DeepEqual(a, Make(Payments(500, 8), cfg)) {
		t.Error("another seed gave the same stream")
	}
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
	if kinds[Original] != n || Unique(messages) != n {
		t.Errorf("%d originals, %d ids, want %d", kinds[Original], Unique(messages), n)
	}
	for kind, least := range map[Kind]int{Retry: 80, Moved: 80, Late: 30} {
		if kinds[kind] < least {
			t.Errorf("%d messages of kind %d, want at least %d", kinds[kind], kind, least)
		}
	}
}

func TestMakeKeepsOrderOfKey(t *testing.T) {
	last := make(map[string]string)
	for _, m := range Make(Payments(500, 3), Config{Seed: 3, Partitions: 6, Duplicates: 50}) {
		if m.Kind == Original {
			if m.ID <= last[m.Key] {
				t.Fatalf("%s of %s comes after %s", m.ID, m.Key, last[m.Key])
			}
			last[m.Key] = m.ID
		}
	}
}

func TestMakeWithoutDuplicates(t *testing.T) {
	records := []Record{{ID: "a", Key: "a"}, {ID: "b", Key: "b"}, {ID: "c", Key: "a"}}
	messages := Make(records, Config{Partitions: 1})
	if len(messages) != 3 || messages[2].Kind != Original || messages[0].Kind != Original {
		t.Errorf("%+v", messages)
	}
	// no other partition to move to
	if all := Make(records, Config{Partitions: 1, Duplicates: 100}); len(all) != 3+3+1 {
		t.Errorf("%d messages of 3 records, each retried and one late", len(all))
	}
	if len(Make(nil, Config{Partitions: 6, Duplicates: 50})) != 0 {
		t.Error("a stream of nothing")
	}
}
