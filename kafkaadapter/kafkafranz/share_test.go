package kafkafranz

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// stuck is a handler that has no effect until its context ends.
func stuck(ctx context.Context, _ *kafkaadapter.Message) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Duplicates in the topic, two members, and the death of a third that has locked everything
// it could: each effect once, and everything accepted.
func TestShareOnce(t *testing.T) {
	r := newShareRig(t, 2, 30*time.Second, 5)
	r.lease = 3 * time.Second // of the dead
	r.produce(0, 0, 150)
	r.produce(1, 150, 150)
	r.produce(1, 100, 100) // once more
	dead := r.share(stuck, nil)
	r.eventually(func() (bool, string) { return r.noted("delivered") > 0, "nothing arrives" })
	dead.crash()
	slow := func(ctx context.Context, _ *kafkaadapter.Message) error {
		return kafkadriver.Sleep(ctx, time.Millisecond)
	}
	a := r.share(slow, func(c *shareConfig) { c.Tuning.BatchMax = 50 })
	b := r.share(slow, func(c *shareConfig) { c.Tuning.BatchMax = 50 })
	r.allAccepted()
	a.leave()
	b.leave()
	r.once(300)
	assert.GreaterOrEqual(t, r.noted("skipped"), 100, "duplicates that were skipped")
}

// A handler may take longer than the lock lasts, because the lock is renewed.
func TestShareRenews(t *testing.T) {
	renewing(t, 5, 3, func(t *testing.T, r *shareRig) {
		r.produce(0, 0, 3)
		m := r.share(func(ctx context.Context, _ *kafkaadapter.Message) error {
			return kafkadriver.Sleep(ctx, 2*r.lock)
		}, nil)
		r.allAccepted()
		m.leave()
		if r.lapsed() {
			return
		}
		r.once(3)
		assert.NotZero(t, r.noted("renewed"))
	})
}

// Locks that cannot be renewed lapse. The redelivered message is found in flight, and later done.
// The broker refuses the late acknowledgement, and the member reports that.
func TestShareLateAck(t *testing.T) {
	r := newShareRig(t, 1, time.Second, 50)
	r.produce(0, 0, 1)
	older := kversion.Stable()
	older.SetMaxKeyVersion(int16(kmsg.ShareAcknowledge), 1) // as of a broker of 4.1
	var held atomic.Bool
	handle := func(ctx context.Context, _ *kafkaadapter.Message) error {
		held.Store(true)
		for r.noted("waiting") == 0 && ctx.Err() == nil {
			_ = kafkadriver.Sleep(ctx, 10*time.Millisecond)
		}
		return nil
	}
	a := r.share(handle, nil, kgo.MaxVersions(older))
	r.eventually(func() (bool, string) { return held.Load(), "nothing arrives" })
	b := r.share(handle, nil, kgo.MaxVersions(older))
	r.allAccepted()
	r.eventually(func() (bool, string) { return r.noted("refused") > 0, "no refusal is told" })
	a.leave()
	b.leave()
	r.once(1)
	assert.NotZero(t, r.noted("waiting"))
	assert.Equal(t, 1, r.noted("handled"))
}

// A message that fails is tried again, and goes to Park before the broker would drop it. Others of
// its poll are not affected.
func TestSharePark(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 3)
	r.produce(0, 0, 6)
	r.send(&kgo.Record{Topic: orders, Value: []byte("no id")})
	reasons := map[string]error{}
	var parkFails, third atomic.Int32
	m := r.share(func(_ context.Context, m *kafkaadapter.Message) error {
		switch m.ID {
		case "evt_000001":
			return errBroken
		case "evt_000002":
			return dedup.Permanent(errBroken)
		case "evt_000003":
			if third.Add(1) < 3 {
				return kafkaadapter.RetryAfter(time.Millisecond, errBroken)
			}
		case "evt_000004":
			if m.Attempt < 3 {
				panic("on purpose")
			}
		}
		return nil
	}, func(c *shareConfig) {
		park := r.park(reasons)
		c.Deliveries, c.Hold = 3, 200*time.Millisecond
		c.Park = func(ctx context.Context, m *kafkaadapter.Message, reason error) error {
			if parkFails.Add(1) < 3 {
				return errBroken
			}
			return park(ctx, m, reason)
		}
	})
	r.allAccepted()
	m.leave()
	r.once(4)
	for id, want := range map[string]error{"evt_000001": kafkaadapter.ErrAttempts,
		"evt_000002": errBroken, "": kafkaadapter.ErrNoID} {
		assert.ErrorIs(t, reasons[id], want, id)
	}
	assert.Len(t, reasons, 3, "messages that were parked")
	assert.Equal(t, driver.StateFailed, r.stateOf("evt_000002"))
	assert.Equal(t, 1, r.noted("release"))
}

// A handler that was canceled by its timeout may call the cancellation permanent: it runs again.
func TestSharePermanentAfterTheTimeoutIsNotBelieved(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 1)
	reasons := map[string]error{}
	m := r.share(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		return dedup.Permanent(ctx.Err())
	}, func(c *shareConfig) {
		c.Park, c.Attempts.Timeout = r.park(reasons), time.Second
	})
	r.allAccepted()
	m.leave()
	r.once(1)
	assert.Empty(t, reasons, "parked")
}

// Without Park a member keeps a failing message, and retries it until it succeeds.
func TestShareKeepsTrying(t *testing.T) {
	renewing(t, 2, 2, func(_ *testing.T, r *shareRig) {
		r.produce(0, 0, 2)
		m := r.share(func(_ context.Context, m *kafkaadapter.Message) error {
			if m.ID == "evt_000001" && m.Attempt < 8 {
				return errBroken
			}
			return nil
		}, func(c *shareConfig) { c.Deliveries, c.Hold = 2, time.Millisecond })
		r.allAccepted()
		m.leave()
		if !r.lapsed() {
			r.once(2)
		}
	})
}

// Without Park a message that can never be processed stops Run, and is redelivered.
func TestShareUnprocessable(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 3)
	var healed atomic.Bool
	handle := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "evt_000001" && !healed.Load() {
			return dedup.Permanent(errBroken)
		}
		return nil
	}
	err := r.share(handle, nil).wait()
	var message *kafkaadapter.UnprocessableError
	require.ErrorAs(t, err, &message)
	require.ErrorIs(t, err, errBroken)
	assert.EqualValues(t, 1, message.Offset)
	assert.False(t, r.accepted[0][1], "it was accepted")
	healed.Store(true)
	m := r.share(handle, nil)
	r.allAccepted()
	m.leave()
	r.once(3)
}

// If a process dies during the second last delivery, the last one parks the message without a run.
func TestShareLastDelivery(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 2)
	r.lease = 3 * time.Second // of the dead
	r.produce(0, 0, 1)
	var held atomic.Bool
	dead := r.share(func(ctx context.Context, m *kafkaadapter.Message) error {
		held.Store(true)
		return stuck(ctx, m)
	}, nil)
	r.eventually(func() (bool, string) { return held.Load(), "nothing arrives" })
	dead.crash()
	reasons := map[string]error{}
	m := r.share(nil, func(c *shareConfig) { c.Deliveries, c.Park = 2, r.park(reasons) })
	r.allAccepted()
	m.leave()
	r.once(0)
	assert.ErrorIs(t, reasons["evt_000000"], kafkaadapter.ErrAttempts)
}

// While the store is away, no message runs, is accepted, or uses up a delivery.
func TestShareOutage(t *testing.T) {
	renewing(t, 2, 20, func(t *testing.T, r *shareRig) {
		m := r.share(nil, func(c *shareConfig) { c.Deliveries = 2 })
		m.link.cut()
		r.produce(0, 0, 20)
		// for more than two locks
		r.eventually(func() (bool, string) {
			return r.noted("renewed") >= 6 || r.lapsed(), "no locks are renewed"
		})
		r.mu.Lock()
		assert.Zero(t, r.total+r.notes["accept"], "effects and accepted during the outage")
		r.mu.Unlock()
		m.link.heal()
		r.allAccepted()
		m.leave()
		if !r.lapsed() {
			r.once(20)
		}
	})
}

// A message whose record cannot be confirmed is not accepted, and Unrecorded is called.
func TestShareUnrecorded(t *testing.T) {
	renewing(t, 2, 1, func(t *testing.T, r *shareRig) {
		r.lease = time.Second // Unrecorded is called when it is over
		r.produce(0, 0, 1)
		var m *member
		started := make(chan struct{})
		m = r.share(func(context.Context, *kafkaadapter.Message) error {
			<-started
			if r.totalEffects() == 0 {
				m.link.cut()
			}
			return nil
		}, func(c *shareConfig) {
			c.Deliveries = 2
			c.Observer.Unrecorded = func(*kafkaadapter.Message, error) { r.note("unrecorded") }
		})
		close(started)
		r.eventually(func() (bool, string) {
			return r.noted("unrecorded") > 0 && r.noted("renewed") >= 3 || r.lapsed(),
				"it is not told, or the lock is not renewed"
		})
		assert.Zero(t, r.noted("accept"), "accepted while nothing could be recorded")
		m.link.heal()
		r.allAccepted()
		m.leave()
	})
}

// When Run ends, it releases unfinished messages. Those that did not begin count no attempt.
func TestShareShutdown(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 10)
	var held, late atomic.Int32
	leaving := make(chan struct{})
	a := r.share(func(ctx context.Context, m *kafkaadapter.Message) error {
		if held.Add(1) == 1 { // succeeds during the drain
			<-leaving
			return nil
		}
		return stuck(ctx, m)
	}, func(c *shareConfig) { c.Tuning.Workers, c.Tuning.Drain = 2, 4*time.Second })
	r.eventually(func() (bool, string) { return held.Load() == 2, fmt.Sprint(held.Load(), " run") })
	a.cancel()
	close(leaving)
	a.leave()
	assert.EqualValues(t, 2, held.Load(), "began")
	assert.Equal(t, 1, r.totalEffects(), "landed")
	assert.Equal(t, 9, r.noted("release"))
	b := r.share(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Attempt > 1 {
			late.Add(1)
		}
		return nil
	}, nil)
	r.allAccepted()
	b.leave()
	r.once(10)
	assert.Zero(t, late.Load(), "messages that count an attempt which the end of Run cut short")
}

// A handler that ends its goroutine stops Run, and its message is released.
func TestShareNoDecision(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 1)
	m := r.share(func(context.Context, *kafkaadapter.Message) error {
		runtime.Goexit()
		return nil
	}, nil)
	require.ErrorIs(t, m.wait(), kafkadriver.ErrGoexit)
	assert.Zero(t, r.noted("accept"))
	assert.Equal(t, 1, r.noted("release"))
}

// A bad configuration is refused with the field's name. So are bad options, and settings that a
// share group does not support.
func TestShareBadConfig(t *testing.T) {
	r := newShareRig(t, 1, time.Second, 5)
	good := r.shareConfig(&link{Store: r.store}, nil)
	for field, change := range map[string]func(*shareConfig){
		"kafkafranz.ShareOptions.Deliveries":  func(c *shareConfig) { c.Deliveries = 1 },
		"kafkafranz.ShareOptions.Deliveries ": func(c *shareConfig) { c.Deliveries = -1 },
		"kafkafranz.ShareOptions.Hold":        func(c *shareConfig) { c.Hold = -1 },
		"Deduper":                             func(c *shareConfig) { c.Deduper = nil },
		"Handler":                             func(c *shareConfig) { c.Handler = nil },
		"Scope":                               func(c *shareConfig) { c.Scope = "\x00" },
		"Tuning.BatchMax":                     func(c *shareConfig) { c.Tuning.BatchMax = 5000 },
		"Tuning.Workers":                      func(c *shareConfig) { c.Tuning.Workers = -1 },
		"Attempts.RetryBase": func(c *shareConfig) {
			c.Attempts.RetryBase, c.Attempts.RetryMax = time.Second, time.Millisecond
		},
		"Unclaimed": func(c *shareConfig) { c.Deduper, c.Unclaimed = nil, true },
		"BatchHandler": func(c *shareConfig) {
			c.Handler, c.BatchHandler = nil, kafkaadapter.AllOrNothing(
				func(context.Context, []*kafkaadapter.Message) error { return nil })
		},
		"RangeHandler": func(c *shareConfig) {
			c.RangeHandler = func(context.Context, *kafkaadapter.Range) error { return nil }
		},
		"Order":          func(c *shareConfig) { c.Order = kafkaadapter.Unordered },
		"Own":            func(c *shareConfig) { c.Own = &kafkaadapter.Owning{} },
		"Allow.TakeOver": func(c *shareConfig) { c.Allow.TakeOver = true },
		"Attempts.Max":   func(c *shareConfig) { c.Attempts.Max = 3 },
		"Positions":      func(c *shareConfig) { c.Positions = true },
	} {
		cfg := good
		change(&cfg)
		_, err := NewShare(group, cfg.Config, cfg.ShareOptions)
		if !strings.HasPrefix(field, "kafkafranz.") {
			field = "kafkaadapter.Config." + field
		}
		wantInput(t, err, strings.TrimSpace(field))
	}
	_, err := NewShare("", good.Config, good.ShareOptions)
	wantInput(t, err, "group")
	s, err := NewShare(group, good.Config, good.ShareOptions)
	require.NoError(t, err)
	run := func(opts ...kgo.Opt) error {
		return s.Run(t.Context(), append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
	}
	wantInput(t, run(), "kgo.ConsumeTopics")
	wantInput(t, run(nil), "Options")
	require.ErrorContains(t, run(kgo.ConsumeTopics(orders), kgo.ConsumerGroup(group)),
		"ShareGroup", "kgo's own check")
}
