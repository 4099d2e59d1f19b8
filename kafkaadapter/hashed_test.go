package kafkaadapter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

func TestHashed(t *testing.T) {
	// of one zero byte
	const ofNul = "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
	byValue := func(m *sarama.ConsumerMessage) (string, bool) {
		return string(m.Value), m.Value != nil
	}
	seen := map[string]string{}
	for _, c := range []struct {
		name, id, want string // want "sha256:" for some hash
	}{
		{"plain", "evt_1", "evt_1"},
		{"not ASCII", "\u00e9v\u00e9nement", "\u00e9v\u00e9nement"},
		{"255 bytes", strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"256 bytes", strings.Repeat("x", 256), msgid.HashPrefix},
		{"a megabyte", strings.Repeat("x", 1<<20), msgid.HashPrefix},
		{"binary", "\x00", ofNul},
		{"not UTF-8", "\xff\xfe", msgid.HashPrefix},
		{"line end", "a\n", msgid.HashPrefix},
		{"the hash of another", ofNul, msgid.HashPrefix},
		{"looks like a hash", "sha256:", msgid.HashPrefix},
		{"in capitals it does not", "SHA256:1", "SHA256:1"},
	} {
		id, ok := Hashed(byValue)(&sarama.ConsumerMessage{Value: []byte(c.id)})
		if !ok || id != c.want && (c.want != msgid.HashPrefix ||
			!strings.HasPrefix(id, msgid.HashPrefix)) {
			t.Errorf("%s: %q, %v, want %q", c.name, id, ok, c.want)
		}
		if _, err := driver.NewID("n", "", id); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if other, taken := seen[id]; taken {
			t.Errorf("%s has the id of %s: %q", c.name, other, id)
		}
		seen[id] = c.name
	}
	if id, ok := Hashed(byValue)(&sarama.ConsumerMessage{}); ok {
		t.Errorf("found %q where there is none", id)
	}
	if id, _ := Hashed(byValue)(&sarama.ConsumerMessage{Value: []byte{}}); id != "" {
		t.Errorf("an empty id became %q", id)
	}
}

// FuzzHashed: two ids never become one, and every one that is not empty is usable.
func FuzzHashed(f *testing.F) {
	f.Add("a", "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")
	f.Add("\x00", "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d")
	f.Fuzz(func(t *testing.T, a, b string) {
		byKey := Hashed(KafkaKey())
		idA, okA := byKey(&sarama.ConsumerMessage{Key: []byte(a)})
		idB, okB := byKey(&sarama.ConsumerMessage{Key: []byte(b)})
		if okA != (a != "") || okA && !msgid.IsKey(idA) {
			t.Errorf("%q became %q, %v", a, idA, okA)
		}
		if okA && okB && (idA == idB) != (a == b) {
			t.Errorf("%q and %q became %q and %q", a, b, idA, idB)
		}
	})
}

// A dead letter of a message whose id was hashed comes back under that id, not under a
// hash of it, also where DefaultID is what is hashed.
func TestHashedLetterIsReplayed(t *testing.T) {
	p := &fakeProducer{}
	mended := false
	handler := func(context.Context, *Message) error {
		if mended {
			return nil
		}
		return dedup.Permanent(errBroken)
	}
	inBubble(t, 1, handler, func(r *rig, c *Config) {
		c.Park, c.ID = deadLetters(t, p), Hashed(DefaultID())
		r.group.finished = nil
	}, func(r *rig) {
		r.group.add(message("bin\x00ary", "b"))
		r.after(time.Second)
		letter := p.sent()[0]
		id := lastHeader(letter, HeaderID)
		if !strings.HasPrefix(id, msgid.HashPrefix) {
			t.Fatalf("the letter has the id %q", id)
		}
		mended = true
		back, err := Replay(context.Background(), r.dedup, letter)
		if err != nil {
			t.Fatal(err)
		}
		r.group.add(consumed(back))
		r.after(time.Second)
		r.wantRuns(id, 2)
	})
}
