package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("broken")

// sender is a publisher that keeps what it was given.
type sender struct {
	mu   sync.Mutex
	sent []string
	// publish, if set, returns the results of the n-th call, from 1.
	publish func(ctx context.Context, n int, messages []Message) []error
	calls   int
	check   func(*Message) error
}

func (s *sender) Publish(ctx context.Context, messages []Message) []error {
	s.mu.Lock()
	s.calls++
	n := s.calls
	for _, m := range messages {
		s.sent = append(s.sent, m.ID)
	}
	s.mu.Unlock()
	if s.publish == nil {
		return nil
	}
	return s.publish(ctx, n, messages)
}

func (s *sender) Check(m *Message) error {
	if s.check == nil {
		return nil
	}
	return s.check(m)
}

func (s *sender) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// messagesOf makes one message of each id. Its key is the part of the id before the slash.
func messagesOf(ids ...string) (all []Message) {
	for _, id := range ids {
		key, _, _ := strings.Cut(id, "/")
		all = append(all, Message{ID: id, Topic: "t", Key: []byte(key)})
	}
	return all
}

// runRelay runs a relay on a fake database, in fake time, and calls during with both.
func runRelay(t *testing.T, messages []Message, s *sender, edit func(*RelayConfig, *fake),
	during func(*Relay, *fake)) (told []error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(t, Postgres)
		f, db := openFake(t, o, messages...)
		var mu sync.Mutex
		cfg := RelayConfig{
			Outbox: o, DB: db, Publisher: s, OnPark: func(context.Context, Parked) {},
			OnError: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, err)
			},
		}
		if edit != nil {
			edit(&cfg, f)
		}
		r, err := NewRelay(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		during(r, f)
		cancel()
		assert.NoError(t, <-ended)
	})
	return told
}

// after lets the bubble's time pass.
func after(d time.Duration) { <-time.After(d) }

// A relay on a read replica, or one that lacks a right, could not delete the messages that it
// published, and would publish them forever.
func TestNothingIsPublishedThatCannotBeDeleted(t *testing.T) {
	s := &sender{}
	var broken atomic.Bool
	broken.Store(true)
	told := runRelay(t, messagesOf("a/0", "b/0"), s, func(_ *RelayConfig, f *fake) {
		f.fail = func(statement string) error {
			if broken.Load() && statement == "delete" {
				return errBroken
			}
			return nil
		}
	}, func(_ *Relay, f *fake) {
		after(time.Minute)
		got := s.got()
		assert.Empty(t, got)
		broken.Store(false)
		after(time.Minute)
		pending, _ := f.left()
		assert.Empty(t, pending)
		assert.Len(t, s.got(), 2)
	})
	assert.NotEmpty(t, told)
	assert.ErrorIs(t, told[0], errBroken)
}

// A message that cannot be parked stays, and is reported. Its neighbors are not published again.
func TestParkingFails(t *testing.T) {
	s := &sender{check: func(m *Message) error {
		if m.ID == "bad/0" {
			return errFailed
		}
		return nil
	}}
	told := runRelay(t, messagesOf("a/0", "bad/0", "b/0"), s, func(c *RelayConfig, f *fake) {
		c.MaxAttempts = 1
		f.fail = func(statement string) error {
			if statement == "park" {
				return errBroken
			}
			return nil
		}
		for _, r := range f.rows {
			r.shard = 0
		}
	}, func(_ *Relay, f *fake) {
		after(time.Minute)
		pending, parked := f.left()
		assert.Equal(t, []string{"bad/0"}, pending)
		assert.Empty(t, parked)
		got := s.got()
		assert.Equal(t, []string{"a/0", "b/0"}, got)
	})
	assert.ErrorIs(t, errors.Join(told...), errBroken)
}

// A message that the publisher's Check refuses is parked in its first batch, with all defaults, and
// its key waits no longer than that.
func TestCheckedRefusalIsParkedAtOnce(t *testing.T) {
	s := &sender{check: func(m *Message) error {
		if m.ID == "a/0" {
			return errFailed
		}
		return nil
	}}
	told := runRelay(t, messagesOf("a/0", "a/1"), s, nil, func(_ *Relay, f *fake) {
		after(100 * time.Millisecond)
		pending, parked := f.left()
		assert.Empty(t, pending)
		assert.Equal(t, []string{"a/0"}, parked)
		assert.Equal(t, []string{"a/1"}, s.got())
	})
	require.Len(t, told, 1)
	assert.ErrorIs(t, told[0], ErrRejected)
}

// A message that another relay has published meanwhile, or that was deleted, is not parked, and
// OnPark is not called for it.
func TestRejectedMessageIsGone(t *testing.T) {
	var told atomic.Int64
	var db *fake
	s := &sender{publish: func(_ context.Context, _ int, messages []Message) []error {
		db.mu.Lock()
		defer db.mu.Unlock()
		if messages[0].ID == "a/0" {
			db.rows = slices.DeleteFunc(db.rows, func(r *fakeRow) bool { return r.ID == "a/0" })
		}
		return slices.Repeat([]error{Reject(errFailed)}, len(messages))
	}}
	runRelay(t, messagesOf("a/0", "b/0"), s, func(c *RelayConfig, f *fake) {
		c.MaxAttempts, db = 1, f
		c.OnPark = func(_ context.Context, p Parked) {
			told.Add(1)
			assert.Equal(t, "b/0", p.ID)
		}
	}, func(r *Relay, f *fake) {
		after(time.Minute)
		assert.EqualValues(t, 1, told.Load())
		assert.EqualValues(t, 1, r.Stats().Parked)
		pending, parked := f.left()
		assert.Empty(t, pending)
		assert.Equal(t, []string{"b/0"}, parked)
	})
}

// When a publisher panics or ends its goroutine, its messages are not acknowledged.
func TestPanickingPublisher(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() {
		panic("boom")
	}, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			s := &sender{publish: func(_ context.Context, n int, _ []Message) []error {
				if n == 1 {
					end()
				}
				return nil
			}}
			told := runRelay(t, messagesOf("a/0"), s, nil, func(_ *Relay, f *fake) {
				after(time.Minute)
				pending, _ := f.left()
				assert.Empty(t, pending)
				assert.Len(t, s.got(), 2)
			})
			assert.Len(t, told, 1)
			assert.ErrorIs(t, told[0], ErrUnacknowledged)
		})
	}
}

// A check that panics refuses its message and no other.
func TestPanickingCheck(t *testing.T) {
	s := &sender{check: func(m *Message) error {
		if m.ID == "bad/0" {
			panic("boom")
		}
		return nil
	}}
	runRelay(t, messagesOf("a/0", "bad/0"), s, nil, func(_ *Relay, f *fake) {
		after(time.Hour)
		pending, parked := f.left()
		assert.Empty(t, pending)
		assert.Equal(t, []string{"bad/0"}, parked)
		assert.Equal(t, []string{"a/0"}, s.got())
	})
}

// A shard in which all messages wait for one that has failed is not read all the time, however
// much there is to do elsewhere.
func TestWaitingShardRests(t *testing.T) {
	ids := []string{"a/0"}
	for i := range 400 {
		ids = append(ids, fmt.Sprint("a/", i+1))
	}
	// all of them are read, or those behind them are looked for
	for _, batch := range []int{500, 100} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			runRelay(t, messagesOf(ids...), &sender{}, func(c *RelayConfig, f *fake) {
				c.BatchSize = batch
				f.rows[0].until = time.Now().Add(time.Hour)
				f.slow["read"] = 5 * time.Millisecond
			}, func(r *Relay, f *fake) {
				for range 1000 { // somebody else's messages, all the time
					after(10 * time.Millisecond)
					r.box.Notify()
				}
				n := f.ran("read")
				assert.GreaterOrEqual(t, n, 5)
				assert.LessOrEqual(t, n, 250)
			})
		})
	}
}

// A worker that waits long for a connection of a small pool must not publish what it has no time
// left to delete.
func TestSmallPool(t *testing.T) {
	s := &sender{publish: func(ctx context.Context, _ int, _ []Message) []error {
		after(4 * time.Second) // and ignores ctx
		return nil
	}}
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("k%d/0", i))
	}
	runRelay(t, messagesOf(ids...), s, func(c *RelayConfig, _ *fake) {
		c.PublishTimeout, c.StopTimeout = 5*time.Second, time.Minute
		c.DB.SetMaxOpenConns(1)
	}, func(r *Relay, f *fake) {
		after(20 * time.Minute)
		pending, _ := f.left()
		got := s.got()
		assert.Len(t, got, len(ids))
		assert.Empty(t, pending)
	})
}

// A process that was stopped between reading and publishing does not publish: others may have the
// shard by now.
func TestNothingIsPublishedTooLate(t *testing.T) {
	stopped := false
	s := &sender{check: func(*Message) error {
		if !stopped {
			stopped = true
			after(time.Minute)
		}
		return nil
	}}
	s.publish = func(ctx context.Context, _ int, _ []Message) []error {
		assert.Nil(t, ctx.Err())
		return nil
	}
	runRelay(t, messagesOf("a/0"), s, nil, func(_ *Relay, f *fake) {
		after(3 * time.Minute)
		pending, _ := f.left()
		assert.Empty(t, pending)
	})
}

// While the database does not answer, signals do not make the relay ask more often.
func TestSignalsDoNotHurryErrors(t *testing.T) {
	runRelay(t, nil, &sender{}, func(_ *RelayConfig, f *fake) {
		f.fail = func(statement string) error {
			if statement == "busy" {
				return errBroken
			}
			return nil
		}
	}, func(r *Relay, f *fake) {
		for range 10_000 {
			after(time.Millisecond)
			r.box.Notify()
		}
		n := f.ran("busy")
		assert.GreaterOrEqual(t, n, 5)
		assert.LessOrEqual(t, n, 100)
	})
}

// Whichever statement fails once, nothing is lost, and only messages that were published before it
// are published again.
func TestEachStatementFailsOnce(t *testing.T) {
	for statement, again := range map[string]bool{
		"busy": false, "begin": false, "lock": false, "read": false, "savepoint": false,
		"back": false, "fail": false, "delete": true, "commit": true,
	} {
		t.Run(statement, func(t *testing.T) {
			refused := false
			s := &sender{publish: func(_ context.Context, _ int, messages []Message) []error {
				results := make([]error, len(messages))
				for i, m := range messages {
					if m.ID == "b/0" && !refused {
						refused, results[i] = true, errFailed
					}
				}
				return results
			}}
			var failed atomic.Int64
			runRelay(t, messagesOf("a/0", "b/0", "c/0"), s, func(_ *RelayConfig, f *fake) {
				for _, r := range f.rows {
					r.shard = 0
				}
				f.fail = func(ran string) error {
					if ran != statement {
						return nil
					}
					// the first deletion is only tried
					if n := failed.Add(1); n == 1 || again && n == 2 {
						return errBroken
					}
					return nil
				}
			}, func(_ *Relay, f *fake) {
				after(10 * time.Minute)
				pending, parked := f.left()
				got := s.got()
				assert.LessOrEqual(t, len(pending)+len(parked), 0)
				assert.NotZero(t, failed.Load())
				a := len(got) - len(slices.Compact(slices.Sorted(slices.Values(got))))
				assert.False(t, a > 1 &&
					!again, "published %v", got)
			})
		})
	}
}

// seldom makes a relay poll only once an hour.
func seldom(c *RelayConfig) { c.PollMin, c.PollMax = time.Hour, time.Hour }

// A signal comes at the end of a turn that has found nothing, because it looked before the insert.
// The new message must not wait for the next poll.
func TestSignalWhileATurnEnds(t *testing.T) {
	for range 10 { // events at the same time have a random order
		s := &sender{publish: func(context.Context, int, []Message) []error {
			after(10 * time.Millisecond)
			return nil
		}}
		runRelay(t, messagesOf("a/0"), s, func(c *RelayConfig, f *fake) {
			seldom(c)
			f.slow["rollback"] = 100 * time.Millisecond // of the turn that finds nothing
		}, func(r *Relay, f *fake) {
			after(5 * time.Millisecond)
			r.box.Notify() // the shard is busy, so it is looked at once more
			after(50 * time.Millisecond)
			f.add(messagesOf("a/1")[0])
			r.box.Notify()
			after(time.Second)
			got := s.got()
			assert.Equal(t, []string{"a/0", "a/1"}, got)
		})
	}
}

// A failed message is tried again after its delay, even by a relay that polls once an hour.
func TestFailuresDoNotWaitForAPoll(t *testing.T) {
	for _, statement := range []string{"busy", "begin", "lock", "read", "delete", "commit",
		"publisher", "message"} {
		t.Run(statement, func(t *testing.T) {
			failed := false
			once := func(what string) error {
				if what == statement && !failed {
					failed = true
					return errBroken
				}
				return nil
			}
			s := &sender{publish: func(_ context.Context, _ int, messages []Message) []error {
				whole := once("publisher")
				results := make([]error, len(messages))
				for i := range results {
					results[i] = whole
				}
				if err := once("message"); err != nil {
					results[0] = Reject(err)
				}
				return results
			}}
			runRelay(t, messagesOf("a/0", "a/1"), s, func(c *RelayConfig, f *fake) {
				seldom(c)
				f.fail = once
			}, func(_ *Relay, f *fake) {
				after(10 * DefaultRetryMin)
				pending, _ := f.left()
				assert.True(t, failed, "failed: %v, pending %v", failed, pending)
				assert.Empty(t, pending)
			})
		})
	}
}
