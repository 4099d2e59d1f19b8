package kafkaadapter

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// A letter that is sent back runs once more, under its own id, whatever that is found by;
// a second copy of it is a duplicate, and once it has succeeded there is nothing to replay.
func TestReplayedLetterRunsOnceMore(t *testing.T) {
	p := &fakeProducer{}
	var mended atomic.Bool
	handler := func(context.Context, *Message) error {
		if mended.Load() {
			return nil
		}
		return dedup.Permanent(errBroken)
	}
	byValue := func(m *sarama.ConsumerMessage) (string, bool) {
		return "v-" + string(m.Value), true
	}
	inBubble(t, 1, handler, func(r *rig, c *Config) {
		c.Park, c.ID = deadLetters(t, p), FirstOf(Replayed(), byValue)
		r.group.finished = nil // the replay forgets a record below the committed offset
	}, func(r *rig) {
		r.group.add(message("bad", "b"))
		r.after(time.Second)
		r.wantRuns("v-bad", 1)
		r.wantCommitted(1)
		mended.Store(true)
		letter := p.sent()[0]
		for n := range 2 { // as after a crash between the two
			var asked []ReplayOption
			if n > 0 { // the first one has freed the key
				_, err := Replay(context.Background(), r.dedup, letter)
				require.ErrorIs(t, err, ErrNoRecord)
				asked = append(asked, Unrecorded())
			}
			back, err := Replay(context.Background(), r.dedup, letter, asked...)
			if err != nil {
				t.Fatal(err)
			}
			m := consumed(back)
			if m.Topic != topic || string(m.Value) != "bad" || string(m.Key) != "b" {
				t.Errorf("sent back: %+v", m)
			}
			r.group.add(m)
		}
		r.after(time.Second)
		r.wantRuns("v-bad", 2)
		r.wantCommitted(3)
		if _, err := Replay(context.Background(), r.dedup, letter); !errors.Is(err, ErrSettled) {
			t.Errorf("replayed when it had succeeded: %v", err)
		}
	})
}

func TestReplayRefusesWhatIsNoLetter(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		held := r.claimElsewhere(r.dedup, "held")
		with := func(pairs ...string) *sarama.ConsumerMessage {
			m := &sarama.ConsumerMessage{Topic: "dead"}
			for i := 0; i < len(pairs); i += 2 {
				h := header(pairs[i], pairs[i+1])
				m.Headers = append(m.Headers, &h)
			}
			return m
		}
		for name, row := range map[string]struct {
			m    *sarama.ConsumerMessage
			want error
		}{
			"no position": {with(HeaderID, "x"), ErrNoLetter},
			"no value":    {with(HeaderTopic, "t", HeaderTooLarge, "9"), ErrNoLetter},
			"in flight": {with(HeaderTopic, "t", HeaderID, "held", HeaderScope,
				ScopeOf(groupName, topic)), dedup.ErrInFlight},
			"never heard of": {with(HeaderTopic, "t", HeaderID, "x", HeaderScope, "billing/t"),
				ErrNoRecord},
			"without an id": {with(HeaderTopic, "t"), nil},
		} {
			if _, err := Replay(context.Background(), r.dedup, row.m); !errors.Is(err, row.want) {
				t.Errorf("%s: %v, want %v", name, err, row.want)
			}
		}
		var input *dedup.InputError
		if _, err := Replay(context.Background(), r.dedup, nil); !errors.As(err, &input) {
			t.Errorf("nil: %v", err)
		}
		if err := held.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A key that is being tried again, after an earlier replay of its letter, is not forgotten:
// it may succeed between the look and the Forget. One that was given up is.
func TestReplayLeavesRetriesAlone(t *testing.T) {
	for name, row := range map[string]struct{ letter, attempts, kept int }{
		"tried again":    {letter: 3, attempts: 2, kept: 2},
		"given up":       {letter: 3, attempts: 3, kept: 0},
		"given up again": {letter: 3, attempts: 4, kept: 0},
	} {
		cfg := usable(t, Config{})
		for range row.attempts {
			c, err := cfg.Deduper.Claim(t.Context(), "x")
			if err != nil || c.Release(t.Context()) != nil {
				t.Fatal(err)
			}
		}
		id, from, attempts := header(HeaderID, "x"), header(HeaderTopic, "t"),
			header(HeaderAttempts, strconv.Itoa(row.letter))
		letter := &sarama.ConsumerMessage{Topic: "dead",
			Headers: []*sarama.RecordHeader{&id, &from, &attempts}}
		if _, err := Replay(t.Context(), cfg.Deduper, letter); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if rec, err := cfg.Deduper.Lookup(t.Context(), "x"); err != nil || rec.Attempt != row.kept {
			t.Errorf("%s: %d attempts are on record, want %d (%v)", name, rec.Attempt,
				row.kept, err)
		}
	}
}

// The header of a letter counts in the topic that it came from, and nowhere else.
func TestReplayedID(t *testing.T) {
	m := message("own", "k")
	for _, pair := range [][2]string{{HeaderID, "letter"}, {HeaderTopic, "charges"}} {
		h := header(pair[0], pair[1])
		m.Headers = append(m.Headers, &h)
	}
	for topic, want := range map[string]string{"charges": "letter", "refunds": "own"} {
		m.Topic = topic
		if id, ok := DefaultID()(m); id != want || !ok {
			t.Errorf("in %s: %q, %t", topic, id, ok)
		}
	}
}

// RetryAfter replaces the backoff, for the message's own key.
func TestRetryAfter(t *testing.T) {
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "slow" && m.Attempt < 3 {
			return RetryAfter(time.Minute, errBroken)
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("slow", "a"), message("behind", "a"), message("other", "b"))
		r.after(59 * time.Second)
		r.wantRuns("slow", 1)
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		r.wantFree("behind") // which is an attempt too
		r.after(2 * time.Second)
		r.wantRuns("slow", 2)
		r.after(time.Minute)
		r.wantRuns("slow", 3)
		r.wantRuns("behind", 1)
		r.wantCommitted(3)
	})
	if RetryAfter(time.Second, nil) != nil {
		t.Error("an error was made of none")
	}
	if err := RetryAfter(-1, dedup.Permanent(errBroken)); !dedup.IsPermanent(err) ||
		!errors.Is(err, errBroken) {
		t.Errorf("%v hides its cause", err)
	}
}
