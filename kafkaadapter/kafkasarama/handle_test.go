package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

var errBroken = errors.New("broken")

// failForGood is a handler.
func failForGood(context.Context, *kafkaadapter.Message) error { return dedup.Permanent(errBroken) }

func TestHandledMessagesAreCommitted(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.group.add(ids(10)...)
		r.after(time.Second)
		r.wantCommitted(10)
		for _, id := range []string{"id0", "id9"} {
			r.wantRuns(id, 1)
		}
		r.stop()
		r.wantStop()
	})
}

// A failing message is handled again after a backoff, in front of its key; other keys go
// on; nothing from it on is committed.
func TestFailureHoldsUpItsKeyAlone(t *testing.T) {
	var fail atomic.Bool
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
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
		n := r.times("bad")
		assert.True(t, 10 <= n && n <= 100, "failed %d times in 20 s; the backoff is up to 2 s", n)
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
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if attempts = append(attempts, m.Attempt); len(attempts) < 3 {
			return errBroken
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Attempts.RetryBase, c.Attempts.RetryMax = time.Hour, time.Hour
	}, func(r *rig) {
		r.group.add(message("bad", "b"))
		r.after(time.Millisecond * 10)
		r.wantRuns("bad", 1)
		r.wantFree("bad") // this claim is an attempt, too
		r.after(3 * time.Hour)
		assert.Equal(t, []int{1, 3, 4}, attempts)
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
			return errors.Is(err, kafkaadapter.ErrNoID)
		}, 0},
		{"empty id", message("", "k"), func(err error) bool {
			return errors.Is(err, kafkaadapter.ErrNoID)
		}, 0},
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
			handler := func(_ context.Context, m *kafkaadapter.Message) error {
				if m.ID == "permanent" {
					return dedup.Permanent(errBroken)
				}
				return nil
			}
			inBubble(t, 1, handler, func(r *rig, cfg *kafkaadapter.Config) {
				cfg.Fingerprint = true
				cfg.ID = func(m *kafkaadapter.Message) (string, bool) {
					id, ok := kafkaadapter.DefaultID()(m)
					if id == "panic" {
						panic("at the disco")
					}
					return id, ok
				}
				cfg.Park = func(_ context.Context, m *kafkaadapter.Message, err error) error {
					r.ran(m)
					reason = err
					return nil
				}
				cfg.Observer.Parked = func(m *kafkaadapter.Message, _ error) {
					parked = append(parked, m.ID)
				}
				r.group.finished = nil // some have no id to be on record under
			}, func(r *rig) {
				r.group.add(message("taken", "k"), c.message, message("next", "k"))
				r.after(time.Second)
				assert.Len(t, parked, 1)
				require.Error(r.t, reason)
				assert.True(t, c.reason(reason), "parked for %v", reason)
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
	inBubble(t, 1, failForGood, func(_ *rig, c *kafkaadapter.Config) {
		c.Park = func(context.Context, *kafkaadapter.Message, error) error { parked++; return nil }
	}, func(r *rig) {
		r.group.add(message("bad", "k"))
		r.after(time.Second)
		r.group.add(message("bad", "k"))
		r.after(time.Second)
		r.wantRuns("bad", 1)
		r.wantCommitted(2)
		assert.Equal(t, 1, parked)
	})
}

// Without Park the consumer stops: the offset stays, the claim is given back, what was
// finished before is committed, and the other partitions stop too.
func TestUnprocessableStopsWithoutPark(t *testing.T) {
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
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
		var target *kafkaadapter.UnprocessableError
		require.ErrorAs(r.t, err, &target)
		require.ErrorIs(r.t, err, errBroken)
		assert.Equal(t, kafkaadapter.UnprocessableError{Topic: topic, Partition: 0, Offset: 1,
			Err: target.Err}, *target)
		assert.ErrorContains(t, err, "orders/0@1")
		r.wantCommitted(1)
		assert.EqualValues(t, 1, r.group.committedTo(1), "its handler had time to end")
		r.wantRuns("behind", 0)
		r.wantFree("bad")
		r.wantFree("behind")
		assert.Equal(t, 1, r.group.joins, "sessions")
	})
}

// When Park fails or panics, it is called again. Meanwhile the claim is kept, the message does not
// run again, and nothing is committed.
func TestParkIsRepeatedUntilItHolds(t *testing.T) {
	var calls atomic.Int32
	inBubble(t, 1, failForGood, func(_ *rig, c *kafkaadapter.Config) {
		c.Attempts.RetryBase, c.Attempts.RetryMax = 8*time.Second, 8*time.Second
		c.Park = func(context.Context, *kafkaadapter.Message, error) error {
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
		n := calls.Load()
		require.True(r.t, 2 <= n && n < 40, "parked %d times by now", n)
		r.wantHeld("bad")
		r.wantCommitted(0)
		r.after(40 * 8 * time.Second)
		r.wantRuns("bad", 1)
		r.wantCommitted(2)
	})
}

// A panic is a failure like any other, and only of its own message.
func TestPanicIsAFailure(t *testing.T) {
	var errs []error
	calls := 0
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "panics" {
			if calls++; calls < 3 {
				panic(fmt.Sprint("number ", calls))
			}
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Handled = func(m *kafkaadapter.Message, _ time.Duration, err error) {
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
		require.Len(r.t, errs, 3)
		require.ErrorContains(r.t, errs[0], "number 1")
		require.NoError(r.t, errs[2])
	})
}

// A handler that ends its goroutine, as t.FailNow does, stops the consumer: it has not succeeded.
// Its claim is given back, even if the partition is gone already.
func TestGoexitStopsTheConsumer(t *testing.T) {
	var observed error
	handler := func(context.Context, *kafkaadapter.Message) error { runtime.Goexit(); return nil }
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Handled = func(_ *kafkaadapter.Message, _ time.Duration, err error) {
			observed = err
		}
	}, func(r *rig) {
		r.group.add(message("gone", "a"))
		r.after(time.Second)
		require.ErrorContains(r.t, r.wantEnd(), "ended its goroutine")
		require.Error(r.t, observed, "observed as a success")
		r.wantCommitted(0)
		r.wantFree("gone")
	})
}

func TestTimeoutCancelsTheHandler(t *testing.T) {
	var causes []error
	handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
		if len(causes) == 2 {
			return nil
		}
		<-ctx.Done()
		causes = append(causes, context.Cause(ctx))
		return context.Cause(ctx)
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Attempts.Timeout = 3 * time.Second
	}, func(r *rig) {
		r.group.add(message("slow", "a"))
		r.after(5 * time.Second)
		r.wantCommitted(0)
		r.after(5 * time.Second)
		r.wantRuns("slow", 3)
		r.wantCommitted(1)
		assert.ErrorIs(t, causes[0], context.DeadlineExceeded)
	})
}

// A handler that was canceled by its timeout may call the cancellation permanent: it runs again.
func TestPermanentAfterTheTimeoutIsNotBelieved(t *testing.T) {
	for _, batch := range []bool{false, true} {
		runs := 0
		handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
			if runs++; runs == 3 {
				return nil
			}
			<-ctx.Done()
			return dedup.Permanent(ctx.Err())
		}
		parked := parking{}
		inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
			c.Attempts.Timeout, c.Park = 3*time.Second, parked.park
			if batch {
				c.Handler, c.BatchHandler = nil, func(ctx context.Context,
					ms []*kafkaadapter.Message) []error {
					return []error{handler(ctx, ms[0])}
				}
			}
		}, func(r *rig) {
			r.group.add(message("slow", "a"))
			r.after(10 * time.Second)
			assert.Equal(t, 3, runs, "batch: %v", batch)
			assert.Empty(t, parked)
			r.wantCommitted(1)
		})
	}
}

// The handler's context carries the attempt, so that it can derive keys for its calls.
func TestHandlerSeesItsAttempt(t *testing.T) {
	var key string
	var number int
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if a, ok := dedup.FromContext(ctx); ok {
			key, number = a.Key, m.Attempt
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		assert.Equal(t, "x", key)
		assert.Equal(t, 1, number)
	})
}

func TestOrders(t *testing.T) {
	// Later messages take less time, so that every message that may overtake another one does.
	stream := func() []*sarama.ConsumerMessage {
		return []*sarama.ConsumerMessage{
			message("a1", "a"), message("b1", "b"), message("a2", "a"), message("n1", ""),
			message("b2", "b"), message("n2", ""),
		}
	}
	for _, c := range []struct {
		name  string
		order kafkaadapter.Order
		want  string
	}{
		{"by key", kafkaadapter.ByKey, "n2 n1 b1 a1 b2 a2"},
		{"by partition", kafkaadapter.ByPartition, "a1 b1 a2 n1 b2 n2"},
		{"unordered", kafkaadapter.Unordered, "n2 b2 n1 a2 b1 a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r *rig
			handler := func(_ context.Context, m *kafkaadapter.Message) error {
				<-time.After(time.Duration(10-m.Offset) * time.Second)
				r.note(m.ID)
				return nil
			}
			inBubble(t, 1, handler, func(mine *rig, cfg *kafkaadapter.Config) {
				r, cfg.Order = mine, c.order
			}, func(r *rig) {
				r.group.add(stream()...)
				r.after(2 * time.Minute)
				assert.Equal(t, c.want, strings.Join(r.noted(), " "), "the order in which they end")
				r.wantCommitted(6)
			})
		})
	}
}

// Workers bounds the handlers that run at once.
func TestWorkersBound(t *testing.T) {
	var running, tooMany atomic.Int32
	handler := func(context.Context, *kafkaadapter.Message) error {
		if running.Add(1) > 3 {
			tooMany.Add(1)
		}
		<-time.After(time.Second)
		running.Add(-1)
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.Workers = 3
	}, func(r *rig) {
		r.group.add(ids(12)...)
		r.after(3500 * time.Millisecond)
		assert.EqualValues(t, 3, running.Load())
		r.after(10 * time.Second)
		r.wantCommitted(12)
		assert.Zero(t, tooMany.Load(), "more than 3 ran at once")
	})
}
