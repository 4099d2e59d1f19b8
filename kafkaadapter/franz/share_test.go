package franz

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// stuck is a handler that has no effect until its context ends.
func stuck(ctx context.Context, _ *Message) error {
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
	slow := func(ctx context.Context, _ *Message) error {
		return backoff.Sleep(ctx, time.Millisecond)
	}
	a := r.share(slow, func(c *ShareConfig) { c.BatchMax = 50 })
	b := r.share(slow, func(c *ShareConfig) { c.BatchMax = 50 })
	r.allAccepted()
	a.leave()
	b.leave()
	r.once(300)
	if n := r.noted("skipped"); n < 100 {
		t.Errorf("%d duplicates were skipped, want 100 at least", n)
	}
}

// A handler may outlast the lock: it is renewed.
func TestShareRenews(t *testing.T) {
	renewing(t, 5, 3, func(t *testing.T, r *shareRig) {
		r.produce(0, 0, 3)
		m := r.share(func(ctx context.Context, _ *Message) error {
			return backoff.Sleep(ctx, 2*r.lock)
		}, nil)
		r.allAccepted()
		m.leave()
		if r.lapsed() {
			return
		}
		r.once(3)
		if r.noted("renewed") == 0 {
			t.Errorf("%v", r.notes)
		}
	})
}

// Where locks cannot be renewed they lapse: the copy finds the message in flight, and later
// done; the acknowledgement that comes late is refused, and told.
func TestShareLateAck(t *testing.T) {
	r := newShareRig(t, 1, time.Second, 50)
	r.produce(0, 0, 1)
	older := kversion.Stable()
	older.SetMaxKeyVersion(int16(kmsg.ShareAcknowledge), 1) // as of a broker of 4.1
	var held atomic.Bool
	handle := func(ctx context.Context, _ *Message) error {
		held.Store(true)
		for r.noted("waiting") == 0 && ctx.Err() == nil {
			_ = backoff.Sleep(ctx, 10*time.Millisecond)
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
	if r.noted("waiting") == 0 || r.noted("handled") != 1 {
		t.Errorf("%v", r.notes)
	}
}

// What fails is tried again, and goes to Park before the broker would drop it. Others of its
// poll are not affected.
func TestSharePark(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 3)
	r.produce(0, 0, 6)
	r.send(&kgo.Record{Topic: orders, Value: []byte("no id")})
	reasons := map[string]error{}
	var parkFails, third atomic.Int32
	m := r.share(func(_ context.Context, m *Message) error {
		switch m.ID {
		case "evt_000001":
			return errBroken
		case "evt_000002":
			return dedup.Permanent(errBroken)
		case "evt_000003":
			if third.Add(1) < 3 {
				return RetryAfter(time.Millisecond, errBroken)
			}
		case "evt_000004":
			if m.Attempt < 3 {
				panic("on purpose")
			}
		}
		return nil
	}, func(c *ShareConfig) {
		park := r.park(reasons)
		c.Deliveries, c.Hold = 3, 200*time.Millisecond
		c.Park = func(ctx context.Context, m *Message, reason error) error {
			if parkFails.Add(1) < 3 {
				return errBroken
			}
			return park(ctx, m, reason)
		}
	})
	r.allAccepted()
	m.leave()
	r.once(4)
	for id, want := range map[string]error{"evt_000001": ErrAttempts, "evt_000002": errBroken,
		"": ErrNoID} {
		if !errors.Is(reasons[id], want) {
			t.Errorf("%q was parked for %v, want %v", id, reasons[id], want)
		}
	}
	if len(reasons) != 3 || r.stateOf("evt_000002") != driver.StateFailed ||
		r.noted("release") != 1 {
		t.Errorf("parked %v, notes %v", reasons, r.notes)
	}
}

// Without Park a failing message is kept from its last delivery, for as long as it takes.
func TestShareKeepsTrying(t *testing.T) {
	renewing(t, 2, 2, func(_ *testing.T, r *shareRig) {
		r.produce(0, 0, 2)
		m := r.share(func(_ context.Context, m *Message) error {
			if m.ID == "evt_000001" && m.Attempt < 8 {
				return errBroken
			}
			return nil
		}, func(c *ShareConfig) { c.Deliveries, c.Hold = 2, time.Millisecond })
		r.allAccepted()
		m.leave()
		if !r.lapsed() {
			r.once(2)
		}
	})
}

// Without Park what can never be processed stops Run, and comes again.
func TestShareUnprocessable(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 3)
	var healed atomic.Bool
	handle := func(_ context.Context, m *Message) error {
		if m.ID == "evt_000001" && !healed.Load() {
			return dedup.Permanent(errBroken)
		}
		return nil
	}
	err := r.share(handle, nil).wait()
	var message *UnprocessableError
	if !errors.As(err, &message) || message.Offset != 1 || !errors.Is(err, errBroken) {
		t.Errorf("Run: %v", err)
	}
	if r.accepted[0][1] {
		t.Error("it was accepted")
	}
	healed.Store(true)
	m := r.share(handle, nil)
	r.allAccepted()
	m.leave()
	r.once(3)
}

// A message whose process died with its second last delivery is not tried with the last one.
func TestShareLastDelivery(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 2)
	r.lease = 3 * time.Second // of the dead
	r.produce(0, 0, 1)
	var held atomic.Bool
	dead := r.share(func(ctx context.Context, m *Message) error {
		held.Store(true)
		return stuck(ctx, m)
	}, nil)
	r.eventually(func() (bool, string) { return held.Load(), "nothing arrives" })
	dead.crash()
	reasons := map[string]error{}
	m := r.share(nil, func(c *ShareConfig) { c.Deliveries, c.Park = 2, r.park(reasons) })
	r.allAccepted()
	m.leave()
	r.once(0)
	if !errors.Is(reasons["evt_000000"], ErrAttempts) {
		t.Errorf("parked: %v", reasons)
	}
}

// While the store is away nothing runs, is accepted, or uses a delivery up.
func TestShareOutage(t *testing.T) {
	renewing(t, 2, 20, func(t *testing.T, r *shareRig) {
		m := r.share(nil, func(c *ShareConfig) { c.Deliveries = 2 })
		m.link.cut()
		r.produce(0, 0, 20)
		// for more than two locks
		r.eventually(func() (bool, string) {
			return r.noted("renewed") >= 6 || r.lapsed(), "no locks are renewed"
		})
		r.mu.Lock()
		before := r.total + r.notes["accept"]
		r.mu.Unlock()
		if before != 0 {
			t.Errorf("%d effects and accepted during the outage", before)
		}
		m.link.heal()
		r.allAccepted()
		m.leave()
		if !r.lapsed() {
			r.once(20)
		}
	})
}

// An effect whose record cannot be confirmed is not accepted, and told.
func TestShareUnrecorded(t *testing.T) {
	renewing(t, 2, 1, func(t *testing.T, r *shareRig) {
		r.lease = time.Second // it is told when this is over
		r.produce(0, 0, 1)
		var m *member
		started := make(chan struct{})
		m = r.share(func(context.Context, *Message) error {
			<-started
			if r.totalEffects() == 0 {
				m.link.cut()
			}
			return nil
		}, func(c *ShareConfig) {
			c.Deliveries = 2
			c.Observer.Unrecorded = func(*Message, error) { r.note("unrecorded") }
		})
		close(started)
		r.eventually(func() (bool, string) {
			return r.noted("unrecorded") > 0 && r.noted("renewed") >= 3 || r.lapsed(),
				"it is not told, or the lock is not renewed"
		})
		if n := r.noted("accept"); n != 0 {
			t.Errorf("%d were accepted while nothing could be recorded", n)
		}
		m.link.heal()
		r.allAccepted()
		m.leave()
	})
}

// The end of Run releases what is not finished: what did not begin has not been tried.
func TestShareShutdown(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 10)
	var held, late atomic.Int32
	leaving := make(chan struct{})
	a := r.share(func(ctx context.Context, m *Message) error {
		if held.Add(1) == 1 { // lands in the drain
			<-leaving
			return nil
		}
		return stuck(ctx, m)
	}, func(c *ShareConfig) { c.Workers, c.Drain = 2, 4*time.Second })
	r.eventually(func() (bool, string) { return held.Load() == 2, fmt.Sprint(held.Load(), " run") })
	a.cancel()
	close(leaving)
	a.leave()
	if n := r.noted("release"); held.Load() != 2 || n != 9 || r.totalEffects() != 1 {
		t.Errorf("%d began, %d landed, %d released", held.Load(), r.totalEffects(), n)
	}
	b := r.share(func(_ context.Context, m *Message) error {
		if m.Attempt > 1 {
			late.Add(1)
		}
		return nil
	}, nil)
	r.allAccepted()
	b.leave()
	r.once(10)
	if late.Load() != 0 {
		t.Errorf("%d messages count an attempt that the end of Run cut short", late.Load())
	}
}

// A handler that ends its goroutine stops Run, and its message is released.
func TestShareNoVerdict(t *testing.T) {
	r := newShareRig(t, 1, 30*time.Second, 5)
	r.produce(0, 0, 1)
	m := r.share(func(context.Context, *Message) error {
		runtime.Goexit()
		return nil
	}, nil)
	if err := m.wait(); err == nil {
		t.Error("Run returned nil")
	}
	if r.noted("accept") != 0 || r.noted("release") != 1 {
		t.Errorf("%v", r.notes)
	}
}

// A configuration that cannot be meant is refused with the field's name, and so are options.
func TestShareBadConfig(t *testing.T) {
	r := newShareRig(t, 1, time.Second, 5)
	good := r.shareConfig(&link{Store: r.store}, nil)
	for field, change := range map[string]func(*ShareConfig){
		"Deduper":    func(c *ShareConfig) { c.Deduper = nil },
		"Handler":    func(c *ShareConfig) { c.Handler = nil },
		"Scope":      func(c *ShareConfig) { c.Scope = "\x00" },
		"Deliveries": func(c *ShareConfig) { c.Deliveries = 1 },
		"BatchMax":   func(c *ShareConfig) { c.BatchMax = 5000 },
		"Workers":    func(c *ShareConfig) { c.Workers = -1 },
		"Hold":       func(c *ShareConfig) { c.Hold = -1 },
		"RetryBase": func(c *ShareConfig) {
			c.RetryBase, c.RetryMax = time.Second, time.Millisecond
		},
	} {
		cfg := good
		change(&cfg)
		_, err := NewShare(cfg)
		if input := (*dedup.InputError)(nil); !errors.As(err, &input) ||
			input.Field != "franz.ShareConfig."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	s, err := NewShare(good)
	if err != nil {
		t.Fatal(err)
	}
	for field, opts := range map[string][]kgo.Opt{
		"kgo.ConsumeTopics": {kgo.ShareGroup(group)},
		"Options":           {nil},
		"Options ":          {kgo.ConsumeTopics(orders)},
		"Options  ":         {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders)},
	} {
		err := s.Run(t.Context(), append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
		if input := (*dedup.InputError)(nil); !errors.As(err, &input) ||
			input.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
