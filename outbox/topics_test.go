package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// troubled is a publisher whose topic "bad" fails while trouble is set.
type troubled struct {
	sender
	trouble func(ctx context.Context, messages []Message) error // of topic "bad"; nil: none
	bad     atomic.Int64                                        // messages of it that it was given
}

func (p *troubled) Publish(ctx context.Context, messages []Message) []error {
	if messages[0].Topic != "bad" {
		return p.sender.Publish(ctx, messages)
	}
	p.bad.Add(int64(len(messages)))
	p.mu.Lock()
	trouble := p.trouble
	p.mu.Unlock()
	if trouble == nil {
		return p.sender.Publish(ctx, messages)
	}
	if err := trouble(ctx, messages); err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	return p.sender.Publish(ctx, messages)
}

func (p *troubled) set(trouble func(context.Context, []Message) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = trouble
}

// of are n messages of a topic, each of a key of its own.
func of(topic string, n int) (all []Message) {
	for i := range n {
		id := fmt.Sprint(topic, i, "/0")
		all = append(all, Message{ID: id, Topic: topic, Key: []byte(id)})
	}
	return all
}

// relayOf is runRelay with another publisher.
func relayOf(t *testing.T, p Publisher, messages []Message, edit func(*RelayConfig, *fake),
	during func(*Relay, *fake)) []error {
	t.Helper()
	return runRelay(t, messages, &sender{}, func(c *RelayConfig, f *fake) {
		c.Publisher = p
		if edit != nil {
			edit(c, f)
		}
	}, during)
}

// ofTopic counts the ids that begin with a name.
func ofTopic(ids []string, topic string) (n int) {
	for _, id := range ids {
		if strings.HasPrefix(id, topic) {
			n++
		}
	}
	return n
}

func topicErrors(told []error) (all []*TopicError) {
	for _, err := range told {
		var one *TopicError
		if errors.As(err, &one) {
			all = append(all, one)
		}
	}
	return all
}

func down(context.Context, []Message) error { return errBroken }

func hanging(ctx context.Context, _ []Message) error { <-ctx.Done(); return ctx.Err() }

// The backlog of a topic whose calls fail at once holds up no other topic, and is probed by one
// message at a time. When the topic is back, the whole backlog is published.
func TestFailingTopicIsLeftOut(t *testing.T) {
	var back atomic.Bool
	p := &troubled{}
	const far = 1000 // calls without end would be a test without end
	p.trouble = func(context.Context, []Message) error {
		if back.Load() || p.bad.Load() > far {
			return nil
		}
		return errBroken
	}
	const backlog = 1000
	told := relayOf(t, p, append(of("bad", backlog), of("good", 20)...),
		func(c *RelayConfig, _ *fake) {
			c.BatchSize = 20
		}, func(r *Relay, f *fake) {
			after(time.Second)
			assert.Equal(t, 20, ofTopic(p.got(), "good"), "those behind the backlog")
			before := p.bad.Load()
			assert.LessOrEqual(t, before, int64(DefaultWorkers*20+10),
				"a batch of each worker, and probes")
			after(3 * time.Minute)
			probes := p.bad.Load() - before
			assert.Greater(t, probes, int64(5))
			assert.Less(t, probes, int64(200))
			failing := r.Failing()
			require.Len(t, failing, 1)
			assert.Equal(t, "bad", failing[0].Topic)
			assert.Greater(t, failing[0].Failures, 5)
			require.ErrorIs(t, failing[0].Err, errBroken)
			f.add(of("late", 1)[0])
			after(2 * time.Second)
			assert.Equal(t, 1, ofTopic(p.got(), "late"), "the shard does not rest for the topic")
			back.Store(true)
			after(2 * DefaultRetryMax)
			after(time.Second)
			pending, parked := f.left()
			assert.Empty(t, pending)
			assert.Empty(t, parked)
			assert.Empty(t, r.Failing())
			assert.Len(t, p.got(), backlog+21, "each once")
		})
	all := topicErrors(told)
	require.NotEmpty(t, all)
	for _, one := range all {
		assert.Equal(t, "bad", one.Topic)
		require.ErrorIs(t, one, errBroken)
		assert.LessOrEqual(t, one.Delay, DefaultRetryMax)
	}
}

// A call that takes long holds up only its topic, even in its own shard. Messages that the other
// topics have acknowledged are deleted before it ends, and others behind it are published.
func TestSlowTopicHoldsUpNoOther(t *testing.T) {
	var release chan struct{}
	p := &troubled{trouble: func(context.Context, []Message) error { <-release; return nil }}
	relayOf(t, p, append(of("bad", 3), of("good", 3)...), func(c *RelayConfig, f *fake) {
		release = make(chan struct{})
		c.Workers, c.PublishTimeout = 1, time.Hour
		for _, r := range f.rows {
			r.shard = 7
		}
	}, func(r *Relay, f *fake) {
		after(time.Second)
		pending, _ := f.left()
		assert.Equal(t, 3, len(pending), "those of the call: %v", pending)
		assert.Equal(t, 0, ofTopic(pending, "good"))
		assert.Equal(t, []FailingTopic{{Topic: "bad", Since: r.Failing()[0].Since}}, r.Failing())
		late := of("good", 4)[3]
		f.add(late)
		f.mu.Lock()
		f.rows[len(f.rows)-1].shard = 7
		f.mu.Unlock()
		after(time.Second)
		assert.Contains(t, p.got(), late.ID, "of the same shard, later")
		assert.EqualValues(t, 3, p.bad.Load(), "no probe while the call goes on")
		close(release)
		after(time.Second)
		pending, _ = f.left()
		assert.Empty(t, pending)
		assert.Len(t, p.got(), 7, "each once")
		assert.Empty(t, r.Failing())
		f.mu.Lock()
		defer f.mu.Unlock()
		assert.Empty(t, f.locks, "the shard is free again")
	})
}

// Two calls of a topic take long, in two shards. When one has ended, the topic is back, but the
// messages of the other call are not published again.
func TestSlowCallsInTwoShards(t *testing.T) {
	var release chan struct{}
	p := &troubled{trouble: func(_ context.Context, messages []Message) error {
		if messages[0].ID == "bad0/0" {
			<-release
		} else {
			after(time.Second)
		}
		return nil
	}}
	relayOf(t, p, of("bad", 2), func(c *RelayConfig, f *fake) {
		release = make(chan struct{})
		c.PublishTimeout = time.Hour
		f.rows[0].shard, f.rows[1].shard = 3, 4
	}, func(r *Relay, f *fake) {
		after(5 * time.Second)
		assert.Equal(t, []string{"bad1/0"}, p.got())
		r.box.Notify()
		after(5 * time.Second)
		close(release)
		after(5 * time.Second)
		assert.EqualValues(t, 2, p.bad.Load(), "each was given to the publisher once")
		pending, _ := f.left()
		assert.Empty(t, pending)
	})
}

// Until a call has ended no other relay has its shard: it would publish the same messages, and
// later ones of their keys before them.
func TestLockOutlastsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(t, Postgres)
		_, db := openFake(t, o, of("bad", 1)...)
		release := make(chan struct{})
		p := &troubled{trouble: func(context.Context, []Message) error { <-release; return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			r, err := NewRelay(RelayConfig{Outbox: o, DB: db, Publisher: p,
				OnPark: func(context.Context, Parked) {}, PublishTimeout: time.Hour})
			require.NoError(t, err)
			go func() { ended <- r.Run(ctx) }()
		}
		after(time.Minute)
		assert.EqualValues(t, 1, p.bad.Load(), "calls")
		close(release)
		after(time.Second)
		assert.Len(t, p.got(), 1)
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
}

// If the pool has no connection to spare, the relay waits for a slow call, and nothing is stuck.
func TestNoConnectionToSpare(t *testing.T) {
	p := &troubled{trouble: hanging}
	relayOf(t, p, append(of("bad", 40), of("good", 40)...), func(c *RelayConfig, _ *fake) {
		c.DB.SetMaxOpenConns(DefaultWorkers + 1)
	}, func(_ *Relay, f *fake) {
		after(5 * time.Minute)
		pending, _ := f.left()
		assert.Equal(t, 40, len(pending))
		assert.Equal(t, 0, ofTopic(pending, "good"))
	})
}

// One message fails even when its topic works, with an error that does not name the message. It
// does not keep the topic from coming back.
func TestPoisonDoesNotHoldItsTopic(t *testing.T) {
	p := &troubled{trouble: func(_ context.Context, messages []Message) error {
		if messages[0].ID == "bad0/0" {
			return errBroken
		}
		return nil
	}}
	relayOf(t, p, of("bad", 1), nil, func(r *Relay, f *fake) {
		after(time.Minute)
		require.NotEmpty(t, r.Failing())
		for _, m := range of("bad", 30)[1:] {
			f.add(m)
		}
		after(2 * DefaultRetryMax)
		pending, _ := f.left()
		assert.Equal(t, []string{"bad0/0"}, pending)
	})
}

// A topic of which no message is left is not left out any longer.
func TestTopicWithoutMessages(t *testing.T) {
	p := &troubled{trouble: down}
	relayOf(t, p, of("bad", 1), nil, func(r *Relay, f *fake) {
		after(time.Second)
		require.NotEmpty(t, r.Failing())
		f.mu.Lock()
		f.rows = nil // somebody has deleted it
		f.mu.Unlock()
		after(2 * DefaultRetryMax)
		assert.Empty(t, r.Failing())
	})
}

// lateRounds is so large that a look at the whole shard, or a probe, which would find the messages
// anyway, cannot come in time in all rounds.
const lateRounds = 8

// commitLate adds a message of topic "good" with an id. The caller holds mu.
func (f *fake) commitLate(shard int64, id int, key string) (name string) {
	name = fmt.Sprint("good/", id)
	f.rows = append(f.rows, &fakeRow{id: int64(id), shard: shard,
		Message: Message{ID: name, Topic: "good", Key: []byte(key)}})
	slices.SortFunc(f.rows, func(a, b *fakeRow) int { return int(a.id - b.id) })
	return name
}

// The relay skips the part of a shard that has only messages that are left out. A message that is
// committed there later is found, and is published before a later one of its key.
func TestCommittedBeforeTheBound(t *testing.T) {
	for _, key := range []string{"same", ""} {
		t.Run("key "+key, func(t *testing.T) {
			p := &troubled{trouble: down}
			relayOf(t, p, of("bad", 5), func(_ *RelayConfig, f *fake) {
				f.writers = "3/7" // that commits later
				for i, r := range f.rows {
					r.id, r.shard = int64(100*(i+1)), 7
				}
			}, func(_ *Relay, f *fake) {
				after(time.Minute)
				asked := f.ran("read")
				after(time.Minute)
				assert.Less(t, f.ran("read")-asked, 1000, "the shard is skipped, but for probes")
				var want []string
				for n := range lateRounds {
					f.mu.Lock()
					if n == lateRounds-1 {
						f.writers = ""
					}
					want = append(want, f.commitLate(7, 150+n, key))
					if key != "" {
						want = append(want, f.commitLate(7, 600+n, key))
					}
					f.mu.Unlock()
					after(2*wholeLook + time.Duration(n)*300*time.Millisecond)
					assert.Equal(t, want, p.got())
				}
			})
		})
	}
}

// A call that never returns is left behind and blocks its topic, so that there are no more of them.
func TestCallsThatNeverReturn(t *testing.T) {
	var release chan struct{}
	p := &troubled{trouble: func(context.Context, []Message) error { <-release; return nil }}
	relayOf(t, p, of("bad", 1), func(*RelayConfig, *fake) {
		release = make(chan struct{})
	}, func(r *Relay, f *fake) {
		after(time.Hour)
		assert.EqualValues(t, 1, p.bad.Load())
		f.add(of("good", 1)[0])
		after(time.Second)
		assert.Equal(t, 1, ofTopic(p.got(), "good"))
		f.mu.Lock()
		assert.Empty(t, f.locks, "others may have the shard")
		f.mu.Unlock()
		close(release)
		after(2 * DefaultRetryMax)
		pending, _ := f.left()
		assert.Empty(t, pending)
		assert.Empty(t, r.Failing())
	})
}

// Run ends soon, however long a topic may keep its calls waiting.
func TestRunStopsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(t, Postgres)
		f, db := openFake(t, o, append(of("bad", 50), of("good", 50)...)...)
		r, err := NewRelay(RelayConfig{
			Outbox: o, DB: db, Publisher: &troubled{trouble: hanging},
			OnPark: func(context.Context, Parked) {}, PublishTimeout: time.Hour,
			StopTimeout: time.Hour,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		after(time.Minute)
		cancel()
		began := time.Now()
		require.NoError(t, <-ended)
		assert.LessOrEqual(t, time.Since(began), 2*linger)
		pending, _ := f.left()
		assert.Equal(t, 50, len(pending))
		assert.Empty(t, f.locks)
	})
}

// A relay that was given up may run again. A topic whose calls the first run has left behind is
// left out only until these have returned.
func TestRunAgainAfterCallsWereLeftBehind(t *testing.T) {
	for name, stop := range map[string]time.Duration{
		"in a turn": time.Millisecond, "after the last turn": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				p := &troubled{trouble: func(context.Context, []Message) error {
					<-release
					return errBroken
				}}
				o := newOutbox(t, Postgres)
				f, db := openFake(t, o, of("bad", 20)...)
				r, err := NewRelay(RelayConfig{
					Outbox: o, DB: db, Publisher: p, OnPark: func(context.Context, Parked) {},
					StopTimeout: stop,
				})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, r.Run(ctx), ErrHeldUp)
				p.set(nil)
				close(release)
				ctx, cancel = context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.Run(ctx) }()
				after(2 * DefaultRetryMax)
				pending, _ := f.left()
				assert.Empty(t, pending)
				assert.Empty(t, r.Failing())
				cancel()
				require.NoError(t, <-ended)
			})
		})
	}
}

// A call that is overdue when its turn first looks at it is left behind like others. The relay
// waits for so long only if calls of the topic usually take long.
func TestOverdueCallInItsTurnThatNeverReturns(t *testing.T) {
	var release chan struct{}
	p := &troubled{sender: sender{publish: func(context.Context, int, []Message) []error {
		after(900 * time.Millisecond)
		return nil
	}}}
	relayOf(t, p, of("bad", 1), func(c *RelayConfig, _ *fake) {
		c.PublishTimeout, release = time.Second, make(chan struct{})
	}, func(r *Relay, f *fake) {
		after(5 * time.Second)
		require.EqualValues(t, 1, p.bad.Load(), "bad is known, and takes long")
		p.set(func(context.Context, []Message) error { <-release; return nil })
		f.add(of("bad", 2)[1])
		after(time.Hour)
		assert.EqualValues(t, 2, p.bad.Load(), "no call while one has not returned")
		close(release)
		after(2 * DefaultRetryMax)
		assert.Empty(t, r.Failing())
	})
}

// If more topics fail than can be left out, the broker is at fault, and nothing is lost.
func TestManyTopicsFail(t *testing.T) {
	var back atomic.Bool
	s := &sender{publish: func(_ context.Context, _ int, messages []Message) []error {
		if back.Load() {
			return nil
		}
		return slices.Repeat([]error{errBroken}, len(messages))
	}}
	var messages []Message
	for i := range maxFailing + 20 {
		messages = append(messages, of(fmt.Sprint("t", i, "x"), 1)...)
	}
	runRelay(t, messages, s, func(c *RelayConfig, _ *fake) {
		c.RetryMax = 4 * time.Second
	}, func(r *Relay, f *fake) {
		after(time.Second)
		assert.Len(t, r.Failing(), maxFailing)
		back.Store(true)
		after(10 * time.Second)
		pending, _ := f.left()
		assert.Empty(t, pending)
		assert.Empty(t, r.Failing())
	})
}

// The first call of a topic holds up its shard as briefly as a probe does: the topic may not exist.
func TestFirstCallOfATopicIsNotWaitedFor(t *testing.T) {
	p := &troubled{trouble: hanging}
	relayOf(t, p, of("bad", 1), func(c *RelayConfig, f *fake) {
		c.PollMin = time.Millisecond
	}, func(_ *Relay, f *fake) {
		after(5 * time.Millisecond)
		assert.EqualValues(t, 1, p.bad.Load())
		f.add(of("good", 1)[0])
		f.mu.Lock()
		for _, r := range f.rows {
			r.shard = f.rows[0].shard
		}
		f.mu.Unlock()
		after(probePatience + 10*time.Millisecond)
		assert.Equal(t, 1, ofTopic(p.got(), "good"))
	})
}

// Once the relay knows that a message is left out, it does not read the message again in each poll.
func TestBacklogOfAFailingTopicIsNotReadAgain(t *testing.T) {
	p := &troubled{trouble: down}
	relayOf(t, p, of("bad", 1000), func(c *RelayConfig, f *fake) {
		c.BatchSize, f.writers = 20, "3/7"
	}, func(_ *Relay, f *fake) {
		after(200 * time.Millisecond)
		before := f.ran("read")
		after(time.Second)
		assert.Less(t, f.ran("read")-before, 6*16, "of 16 shards") // they were 1300
	})
}
