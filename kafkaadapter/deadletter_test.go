package kafkaadapter

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// fakeProducer takes letters, unless fail says what is wrong.
type fakeProducer struct {
	sarama.SyncProducer
	mu      sync.Mutex
	fail    func(*sarama.ProducerMessage) error
	letters []*sarama.ConsumerMessage
}

// SendMessage implements sarama.SyncProducer.
func (p *fakeProducer) SendMessage(m *sarama.ProducerMessage) (partition int32, offset int64,
	err error) {
	p.mu.Lock()
	fail := p.fail
	p.mu.Unlock()
	if fail != nil {
		if err := fail(m); err != nil {
			return 0, 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letters = append(p.letters, consumed(m))
	return 0, int64(len(p.letters)), nil
}

func (p *fakeProducer) failing(f func(*sarama.ProducerMessage) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

func (p *fakeProducer) sent() []*sarama.ConsumerMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.letters)
}

// consumed is a produced message as a consumer gets it.
func consumed(m *sarama.ProducerMessage) *sarama.ConsumerMessage {
	bytesOf := func(e sarama.Encoder) []byte {
		if e == nil {
			return nil
		}
		b, _ := e.Encode()
		return append([]byte{}, b...)
	}
	out := &sarama.ConsumerMessage{Topic: m.Topic, Key: bytesOf(m.Key), Value: bytesOf(m.Value)}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, &h)
	}
	return out
}

// deadLetters is Config.Park over a fakeProducer.
func deadLetters(t *testing.T, p *fakeProducer) func(context.Context, *Message, error) error {
	t.Helper()
	park, err := DeadLetters(DeadLetterConfig{Producer: p, Topic: func(m *Message) string {
		return m.Topic + ".dead"
	}})
	if err != nil {
		t.Fatal(err)
	}
	return park
}

func TestDeadLetterIsTheMessageAndItsStory(t *testing.T) {
	for name, row := range map[string]struct{ key, value []byte }{
		"key and value": {[]byte("k"), []byte("v")},
		"tombstone":     {[]byte("k"), nil},
		"empty":         {[]byte{}, []byte{}},
		"no key":        {nil, []byte("v")},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fakeProducer{}
			m := &Message{ID: "id7", Scope: "billing/first", first: "first", Attempt: 3,
				ConsumerMessage: &sarama.ConsumerMessage{
					Topic: "charges", Partition: 2, Offset: 7, Key: row.key, Value: row.value,
					Timestamp: time.UnixMilli(1_700_000_000_123),
					Headers: []*sarama.RecordHeader{
						{Key: []byte("Trace"), Value: []byte("a")}, nil,
						{Key: []byte("Trace"), Value: nil},
						{Key: []byte("Onceward-Error"), Value: []byte("an older death")},
					},
				}}
			if err := deadLetters(t, p)(t.Context(), m,
				errors.New(strings.Repeat("é", 1000))); err != nil {
				t.Fatal(err)
			}
			got := p.sent()[0]
			if got.Topic != "charges.dead" || string(got.Key) != string(row.key) ||
				string(got.Value) != string(row.value) ||
				(got.Key == nil) != (row.key == nil) || (got.Value == nil) != (row.value == nil) {
				t.Errorf("%+v", got)
			}
			for key, want := range map[string]string{
				HeaderID: "id7", HeaderScope: "billing/first", HeaderFirstTopic: "first",
				HeaderTopic: "charges", HeaderPartition: "2", HeaderOffset: "7",
				HeaderAttempts:  "3",
				HeaderTimestamp: "2023-11-14T22:13:20.123Z", HeaderError: strings.Repeat("é", 512),
			} {
				if got := lastHeader(got, key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
			if n := len(got.Headers); n != 2+9 || string(got.Headers[0].Value) != "a" ||
				got.Headers[1].Value != nil {
				t.Errorf("%d headers: %v", n, got.Headers)
			}
		})
	}
}

// While the dead-letter topic is down the offset stays and the lane waits; other keys move
// on, and the handler is not run again. When it is back, the letter is there once.
func TestDeadLetterTopicThatIsDown(t *testing.T) {
	p := &fakeProducer{}
	p.failing(func(*sarama.ProducerMessage) error { return sarama.ErrNotEnoughReplicas })
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "bad" {
			return dedup.Permanent(errBroken)
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) { c.Park = deadLetters(t, p) }, func(r *rig) {
		r.group.add(message("first", "a"), message("bad", "b"), message("behind", "b"),
			message("other", "c"))
		r.after(10 * time.Second)
		r.wantCommitted(1)
		r.wantRuns("bad", 1)
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		p.failing(nil)
		r.after(5 * time.Second)
		r.wantCommitted(4)
		r.wantRuns("bad", 1)
		r.wantRuns("behind", 1)
		if letters := p.sent(); len(letters) != 1 || lastHeader(letters[0], HeaderID) != "bad" {
			t.Errorf("%d letters", len(letters))
		}
	})
}

// A letter that no topic takes for its size goes without its value, and says so.
func TestDeadLetterThatIsTooLarge(t *testing.T) {
	for name, refusal := range map[string]error{
		"by the broker": sarama.ErrMessageSizeTooLarge,
		"by sarama": sarama.ConfigurationError(
			"Attempt to produce message larger than configured Producer.MaxMessageBytes: 9 > 8"),
	} {
		t.Run(name, func(t *testing.T) {
			p := &fakeProducer{}
			p.failing(func(m *sarama.ProducerMessage) error {
				if m.Value.Length() > 0 {
					return refusal
				}
				return nil
			})
			m := &Message{ID: "id", ConsumerMessage: &sarama.ConsumerMessage{Topic: "t",
				Value: make([]byte, 1000)}}
			if err := deadLetters(t, p)(t.Context(), m, errBroken); err != nil {
				t.Fatal(err)
			}
			if got := p.sent()[0]; len(got.Value) != 0 || got.Value == nil ||
				lastHeader(got, HeaderTooLarge) != "1000" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A header of a megabyte comes to the letter once, not once more as the id, and one that
// the topic does not take goes without it: the message must not hold up its key for ever.
func TestDeadLetterOfAHugeHeader(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	size := func(m *sarama.ProducerMessage) (n int) {
		for _, h := range m.Headers {
			n += len(h.Key) + len(h.Value)
		}
		return n
	}
	for name, row := range map[string]struct{ limit, headers int }{
		"that fits":         {1<<20 + 2048, 1},
		"that does not fit": {1 << 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fakeProducer{}
			var log strings.Builder
			p.failing(func(m *sarama.ProducerMessage) error {
				if size(m) > row.limit {
					return sarama.ErrMessageSizeTooLarge
				}
				return nil
			})
			inBubble(t, 1, nil, func(_ *rig, c *Config) {
				c.Park = deadLetters(t, p)
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}, func(r *rig) {
				r.group.finished = nil // a message without a usable id has no record
				r.group.add(message(huge, "k"))
				r.after(time.Second)
				r.wantCommitted(1)
			})
			letters := p.sent()
			if len(letters) != 1 {
				t.Fatalf("%d letters", len(letters))
			}
			if n := len(lastHeader(letters[0], "message-id")); n != row.headers*len(huge) {
				t.Errorf("the header has %d bytes", n)
			}
			if id := lastHeader(letters[0], HeaderID); id != "" {
				t.Errorf("an id of %d bytes that was never claimed", len(id))
			}
			if why := lastHeader(letters[0], HeaderError); why == "" || len(why) > 1<<10 ||
				log.Len() > 1<<12 {
				t.Errorf("the reason has %d bytes, the log %d", len(why), log.Len())
			}
		})
	}
}

func TestDeadLetterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProducer{}
		p.failing(func(*sarama.ProducerMessage) error { time.Sleep(time.Minute); return nil })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, partition.ErrRevoked)
		defer cancel()
		start := time.Now()
		err := deadLetters(t, p)(ctx, &Message{ConsumerMessage: &sarama.ConsumerMessage{}},
			errBroken)
		if !errors.Is(err, partition.ErrRevoked) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := deadLetters(t, p)(ctx, &Message{ConsumerMessage: &sarama.ConsumerMessage{}},
			errBroken); !errors.Is(err, partition.ErrRevoked) {
			t.Errorf("with a context that has ended: %v", err)
		}
		synctest.Wait()
		time.Sleep(time.Hour) // the sends that were left behind end
	})
}

func TestDeadLetterConfigIsChecked(t *testing.T) {
	topic := func(*Message) string { return "" }
	for field, cfg := range map[string]DeadLetterConfig{
		"Producer": {Topic: topic},
		"Topic":    {Producer: &fakeProducer{}},
	} {
		_, err := DeadLetters(cfg)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != "kafkaadapter.DeadLetterConfig."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	park, err := DeadLetters(DeadLetterConfig{Producer: &fakeProducer{}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	if err := park(t.Context(), &Message{ConsumerMessage: &sarama.ConsumerMessage{}},
		errBroken); err == nil {
		t.Error("a letter to no topic was sent")
	}
}

func TestCheckProducer(t *testing.T) {
	good := func() *sarama.Config {
		c := sarama.NewConfig()
		c.Producer.RequiredAcks, c.Producer.Return.Successes, c.Version = sarama.WaitForAll,
			true, sarama.V2_8_0_0
		return c
	}
	if err := CheckProducer(good()); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	for _, row := range []struct {
		field, reason string
		change        func(*sarama.Config)
	}{
		{"Producer.RequiredAcks", "could be lost with the leader", func(c *sarama.Config) {
			c.Producer.RequiredAcks = sarama.WaitForLocal
		}},
		{"Producer.RequiredAcks", "is not WaitForAll", func(c *sarama.Config) {
			c.Producer.RequiredAcks = sarama.NoResponse
		}},
		{"Producer.Return", "must have Successes and Errors on", func(c *sarama.Config) {
			c.Producer.Return.Successes = false
		}},
		{"Producer.Return", "must have Successes and Errors on", func(c *sarama.Config) {
			c.Producer.Return.Errors = false
		}},
		{"Producer.Retry.Max", "a change of leaders would fail every letter",
			func(c *sarama.Config) { c.Producer.Retry.Max = 0 }},
		{"Version", "letters need headers", func(c *sarama.Config) {
			c.Version = sarama.V0_10_2_1
		}},
		{"Producer.Timeout", "at most a minute", func(c *sarama.Config) {
			c.Producer.Timeout = time.Hour
		}},
		{"Producer.Timeout", "must be positive", func(c *sarama.Config) { c.Producer.Timeout = 0 }},
	} {
		c := good()
		row.change(c)
		wantRefusal(t, CheckProducer(c), "sarama.Config."+row.field, row.reason)
	}
	wantRefusal(t, CheckProducer(nil), "sarama.Config", "is nil")
}
