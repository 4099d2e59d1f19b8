package kafkaadapter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

var errBroken = errors.New("broken")

func TestHandledMessagesAreCommitted(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.group.add(ids(10)...)
		r.after(time.Second)
		r.wantCommitted(10)
		for _, id := range []string{"id0", "id9"} {
			r.wantRuns(id, 1)
		}
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A failing message is handled again after a backoff, in front of its key; other keys go
// on; nothing from it on is committed.
func TestFailureHoldsUpItsKeyAlone(t *testing.T) {
	var fail atomic.Bool
	handler := func(_ context.Context, m *Message) error {
		if fail.Load() && m.ID == "bad" {
			return errBroken
		}
		return nil
	}
	fail.Store(true)
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("first", "a"), message("bad", "b"), message("behind", "b"),
			message("other", "c"))
		r.after(20 * time.Second)
		if n := r.times("bad"); n < 10 || n > 100 {
			t.Errorf("failed %d times in 20 s; want a backoff of up to 2 s", n)
		}
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		r.wantCommitted(1)
		fail.Store(false)
		r.after(5 * time.Second)
		r.wantRuns("behind", 1)
		r.wantCommitted(4)
	})
}

// Between two tries the claim is free, and every try counts.
func TestFailureReleasesTheClaim(t *testing.T) {
	var attempts []int
	handler := func(_ context.Context, m *Message) error {
		if attempts = append(attempts, m.Attempt); len(attempts) < 3 {
			return errBroken
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.RetryBase, c.RetryMax = time.Hour, time.Hour
	}, func(r *rig) {
		r.group.add(message("bad", "b"))
		r.after(time.Millisecond * 10)
		r.wantRuns("bad", 1)
		r.wantFree("bad") // which is an attempt too
		r.after(3 * time.Hour)
		if !slices.Equal(attempts, []int{1, 3, 4}) {
			t.Errorf("attempts %v, want 1, 3, 4", attempts)
		}
		r.wantCommitted(1)
	})
}

// Every kind of message that cannot be processed is parked with its reason, once, and
// then committed.
func TestUnprocessableIsParked(t *testing.T) {
	input := func(err error) bool {
		var target *dedup.InputError
		return errors.As(err, &target)
	}
	for _, c := range []struct {
		name    string
		message *sarama.ConsumerMessage
		reason  func(error) bool
		runs    int
	}{
		{"permanent", message("permanent", "k"), func(err error) bool {
			return errors.Is(err, errBroken) && dedup.IsPermanent(err)
		}, 1},
		{"no header", &sarama.ConsumerMessage{}, func(err error) bool {
			return errors.Is(err, ErrNoID)
		}, 0},
		{"empty id", message("", "k"), func(err error) bool { return errors.Is(err, ErrNoID) }, 0},
		{"long id", message(strings.Repeat("x", 256), "k"), input, 0},
		{"id not printable", message("a\x00b", "k"), input, 0},
		{"id not UTF-8", message("a\xff", "k"), input, 0},
		{"other payload", &sarama.ConsumerMessage{Value: []byte("other"),
			Headers: message("taken", "").Headers}, func(err error) bool {
			return errors.Is(err, dedup.ErrMismatch)
		}, 0},
		{"id function panics", message("panic", "k"), func(err error) bool {
			return strings.Contains(err.Error(), "ID panicked: at the disco")
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reason error
			var parked []string
			handler := func(_ context.Context, m *Message) error {
				if m.ID == "permanent" {
					return dedup.Permanent(errBroken)
				}
				return nil
			}
			inBubble(t, 1, handler, func(r *rig, cfg *Config) {
				cfg.Fingerprint = true
				cfg.ID = func(m *sarama.ConsumerMessage) (string, bool) {
					id, ok := DefaultID()(m)
					if id == "panic" {
						panic("at the disco")
					}
					return id, ok
				}
				cfg.Park = func(_ context.Context, m *Message, err error) error {
					r.ran(m)
					reason = err
					return nil
				}
				cfg.Observer.Parked = func(m *Message, _ error) { parked = append(parked, m.ID) }
				r.group.finished = nil // some have no id to be on record under
			}, func(r *rig) {
				r.group.add(message("taken", "k"), c.message, message("next", "k"))
				r.after(time.Second)
				if reason == nil || !c.reason(reason) || len(parked) != 1 {
					t.Errorf("parked %q for %v", parked, reason)
				}
				r.wantRuns("next", 1)
				r.wantCommitted(3)
				r.wantRunning()
			})
		})
	}
}

// A failure that is parked is on record, so a duplicate of it is neither run nor parked.
func TestDuplicateOfAParkedMessageIsSkipped(t *testing.T) {
	parked := 0
	handler := func(context.Context, *Message) error { return dedup.Permanent(errBroken) }
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.Park = func(context.Context, *Message, error) error { parked++; return nil }
	}, func(r *rig) {
		r.group.add(message("bad", "k"))
		r.after(time.Second)
		r.group.add(message("bad", "k"))
		r.after(time.Second)
		r.wantRuns("bad", 1)
		r.wantCommitted(2)
		if parked != 1 {
			t.Errorf("parked %d times, want once", parked)
		}
	})
}

// Without Park the consumer stops: the offset stays, the claim is given back, what was
// finished before is committed, and the other partitions stop too.
func TestUnprocessableStopsWithoutPark(t *testing.T) {
	handler := func(ctx context.Context, m *Message) error {
		switch m.ID {
		case "bad":
			return dedup.Permanent(errBroken)
		case "slow":
			<-time.After(5 * time.Second)
		}
		return ctx.Err()
	}
	inBubble(t, 2, handler, nil, func(r *rig) {
		r.group.add(at(1, 0, message("slow", "c")))
		r.after(time.Second)
		r.group.add(message("good", "a"), message("bad", "b"), message("behind", "b"))
		r.after(3 * time.Second)
		r.wantRunning() // the other partition is being drained
		r.after(2 * time.Second)
		err := r.wantEnd()
		var target *UnprocessableError
		if !errors.As(err, &target) {
			r.t.Fatalf("Run: %v, want an UnprocessableError", err)
		}
		if target.Topic != topic || target.Partition != 0 || target.Offset != 1 ||
			!errors.Is(err, errBroken) {
			t.Errorf("Run: %+v", target)
		}
		if !strings.Contains(err.Error(), "orders/0@1") {
			t.Errorf("Run: %v", err)
		}
		r.wantCommitted(1)
		if n := r.group.committedTo(1); n != 1 {
			t.Errorf("partition 1 is committed to %d, want 1: its handler had time to end", n)
		}
		r.wantRuns("behind", 0)
		r.wantFree("bad")
		r.wantFree("behind")
		if r.group.joins != 1 {
			t.Errorf("joined %d times, want once", r.group.joins)
		}
	})
}

// Park that fails or panics is called again, while the claim is kept and the message is
// not run again. Nothing is committed before.
func TestParkIsRepeatedUntilItHolds(t *testing.T) {
	var calls atomic.Int32
	handler := func(context.Context, *Message) error { return dedup.Permanent(errBroken) }
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.RetryBase, c.RetryMax = 8*time.Second, 8*time.Second
		c.Park = func(context.Context, *Message, error) error {
			switch n := calls.Add(1); {
			case n == 1:
				panic("no")
			case n < 40:
				return errBroken
			}
			return nil
		}
	}, func(r *rig) {
		r.group.add(message("bad", "a"), message("behind", "a"))
		r.after(2 * lease)
		if n := calls.Load(); n < 2 || n >= 40 {
			r.t.Fatalf("parked %d times by now", n)
		}
		r.wantHeld("bad")
		r.wantCommitted(0)
		r.after(40 * 8 * time.Second)
		r.wantRuns("bad", 1)
		r.wantCommitted(2)
	})
}

// A panic is a failure like another, and of one message alone.
func TestPanicIsAFailure(t *testing.T) {
	var errs []error
	calls := 0
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "panics" {
			if calls++; calls < 3 {
				panic(fmt.Sprint("number ", calls))
			}
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.Observer.Handled = func(m *Message, _ time.Duration, err error) {
			if m.ID == "panics" {
				errs = append(errs, err)
			}
		}
	}, func(r *rig) {
		r.group.add(message("panics", "a"), message("other", "b"))
		r.after(10 * time.Second)
		r.wantRuns("panics", 3)
		r.wantRuns("other", 1)
		r.wantCommitted(2)
		if len(errs) != 3 || errs[0] == nil || !strings.Contains(errs[0].Error(), "number 1") ||
			errs[2] != nil {
			t.Errorf("observed %v", errs)
		}
	})
}

// A handler that ends its goroutine, as t.FailNow does, stops the consumer: no verdict is
// no success. Its claim is given back, also when the partition is gone already.
func TestGoexitStopsTheConsumer(t *testing.T) {
	var observed error
	handler := func(context.Context, *Message) error { runtime.Goexit(); return nil }
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.Observer.Handled = func(_ *Message, _ time.Duration, err error) { observed = err }
	}, func(r *rig) {
		r.group.add(message("gone", "a"))
		r.after(time.Second)
		if err := r.wantEnd(); err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Errorf("Run: %v", err)
		}
		if observed == nil {
			t.Error("observed as a success")
		}
		r.wantCommitted(0)
		r.wantFree("gone")
	})
}

func TestTimeoutCancelsTheHandler(t *testing.T) {
	var causes []error
	handler := func(ctx context.Context, _ *Message) error {
		if len(causes) == 2 {
			return nil
		}
		<-ctx.Done()
		causes = append(causes, context.Cause(ctx))
		return context.Cause(ctx)
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) { c.Timeout = 3 * time.Second }, func(r *rig) {
		r.group.add(message("slow", "a"))
		r.after(5 * time.Second)
		r.wantCommitted(0)
		r.after(5 * time.Second)
		r.wantRuns("slow", 3)
		r.wantCommitted(1)
		if !errors.Is(causes[0], context.DeadlineExceeded) {
			t.Errorf("cancelled with %v", causes[0])
		}
	})
}

// The handler's context carries the attempt, so that it can derive keys for its calls.
func TestHandlerSeesItsAttempt(t *testing.T) {
	var key string
	var number int
	handler := func(ctx context.Context, m *Message) error {
		if a, ok := dedup.FromContext(ctx); ok {
			key, number = a.Key, m.Attempt
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		if key != "x" || number != 1 {
			t.Errorf("saw key %q, attempt %d", key, number)
		}
	})
}

func TestOrders(t *testing.T) {
	// Messages take the less time the later they come, so that everything that may
	// overtake does.
	stream := func() []*sarama.ConsumerMessage {
		return []*sarama.ConsumerMessage{
			message("a1", "a"), message("b1", "b"), message("a2", "a"), message("n1", ""),
			message("b2", "b"), message("n2", ""),
		}
	}
	for _, c := range []struct {
		name  string
		order Order
		want  string
	}{
		{"by key", ByKey, "n2 n1 b1 a1 b2 a2"},
		{"by partition", ByPartition, "a1 b1 a2 n1 b2 n2"},
		{"unordered", Unordered, "n2 b2 n1 a2 b1 a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r *rig
			handler := func(_ context.Context, m *Message) error {
				<-time.After(time.Duration(10-m.Offset) * time.Second)
				r.note(m.ID)
				return nil
			}
			inBubble(t, 1, handler, func(mine *rig, cfg *Config) {
				r, cfg.Order = mine, c.order
			}, func(r *rig) {
				r.group.add(stream()...)
				r.after(2 * time.Minute)
				if got := strings.Join(r.noted(), " "); got != c.want {
					t.Errorf("ended in the order %s, want %s", got, c.want)
				}
				r.wantCommitted(6)
			})
		})
	}
}

// Workers bounds the handlers that run at once.
func TestWorkersBound(t *testing.T) {
	var running, tooMany atomic.Int32
	handler := func(context.Context, *Message) error {
		if running.Add(1) > 3 {
			tooMany.Add(1)
		}
		<-time.After(time.Second)
		running.Add(-1)
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) { c.Workers = 3 }, func(r *rig) {
		r.group.add(ids(12)...)
		r.after(3500 * time.Millisecond)
		if n := running.Load(); n != 3 {
			t.Errorf("%d run at once, want 3", n)
		}
		r.after(10 * time.Second)
		r.wantCommitted(12)
		if tooMany.Load() > 0 {
			t.Error("more than 3 ran at once")
		}
	})
}
