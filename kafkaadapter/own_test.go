package kafkaadapter

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// owned runs f in fake time with a rig whose partitions are owned.
func owned(t *testing.T, partitions int32, handler Handler, change func(*fakeOwner, *Config),
	f func(*rig, *fakeOwner)) {
	t.Helper()
	var o *fakeOwner
	inBubble(t, partitions, handler, func(r *rig, c *Config) {
		o = owning(r, c)
		if change != nil {
			change(o, c)
		}
	}, func(r *rig) { f(r, o) })
}

// keyed is a message with an id, on a partition.
func keyed(p int32, id, key string) *sarama.ConsumerMessage { return at(p, 0, message(id, key)) }

// Nothing is claimed before the partition is owned, however often it is refused; others do not
// wait for it. The brokers are asked how many partitions there are.
func TestOwnBeforeTheFirstClaim(t *testing.T) {
	refusals := slices.Repeat([]error{errFakeHeld}, 6)
	var log bytes.Buffer
	owned(t, 2, nil, func(o *fakeOwner, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.refuse[1] = refusals
		o.r.coordinator.more = 3
		c.Partitioner = func(key []byte, _ int32) int32 { return int32(key[0] - '0') }
	}, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "a", "0"), keyed(1, "b", "1"))
		r.after(10 * time.Millisecond)
		r.wantRuns("a", 1)
		r.wantRuns("b", 0)
		if at := r.a.Progress()[1]; !at.NotOwned || at.StoreDown || !r.group.isPaused(1) ||
			r.group.isPaused(0) || r.a.Progress()[0].NotOwned {
			t.Errorf("progress of what is not owned: %+v", at)
		}
		r.after(6 * time.Second) // the backoff is a second at most
		r.wantRuns("b", 1)
		if at := r.a.Progress()[1]; at.NotOwned || r.group.isPaused(1) {
			t.Errorf("progress of what is owned: %+v", at)
		}
		if n := strings.Count(log.String(), "not owned"); n != 1 ||
			strings.Contains(log.String(), "lost") {
			t.Errorf("%d of %d refusals were told, want the first: %s", n, len(refusals), &log)
		}
		want := Assigned{Group: "g", Topic: topic, Partition: 1, Count: 5, Generation: 1}
		if asked := o.askedFor(1); len(asked) != 1+len(refusals) || asked[0] != want {
			t.Errorf("asked %d times, first for %+v; want %d times for %+v", len(asked), asked[0],
				1+len(refusals), want)
		}
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Error(err)
		}
		o.wantReleased(0, 1)
		o.wantReleased(1, 1)
	})
}

// The brokers may not have heard of a partition yet, or not answer.
func TestOwnWaitsForTheCount(t *testing.T) {
	owned(t, 2, nil, func(o *fakeOwner, _ *Config) {
		o.r.coordinator.more = -1
	}, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "a", ""), keyed(1, "b", ""))
		r.after(5 * time.Second)
		if n := len(o.askedFor(1)); n > 0 || r.times("a") != 1 || r.times("b") != 0 {
			t.Errorf("a partition that the brokers do not know was asked for %d times", n)
		}
		r.group.change(func() { r.coordinator.more = 0 })
		r.after(2 * time.Second)
		r.wantRuns("b", 1)
	})
}

// What is lost cancels what runs, at once; nothing begins before it is owned again, and then
// all of it is asked about. The session goes on, and the other partition with it.
func TestOwnIsLostMidBatch(t *testing.T) {
	var ends toldErrors
	stuck := true
	handler := func(ctx context.Context, m *Message) error {
		if stuck && m.Partition == 0 {
			<-ctx.Done()
			ends.add(context.Cause(ctx))
			return nil // as if the effect had landed: it is for the store to say
		}
		return nil
	}
	all := keysOf(0, 2, 3)
	owned(t, 2, handler, func(_ *fakeOwner, c *Config) {
		c.Workers = 2
	}, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "x", all[0]), keyed(0, "y", all[1]), keyed(0, "waits", all[2]))
		r.after(time.Second)
		o.refuseNext(0, slices.Repeat([]error{errFakeHeld}, 20)...)
		stuck = false
		o.lose(0)
		r.after(time.Millisecond)
		if causes := ends.all(); len(causes) != 2 || !errors.Is(causes[0], errFakeLost) ||
			!errors.Is(causes[0], dedup.ErrLeaseLost) {
			t.Errorf("handlers ended with %v", causes)
		}
		if !r.group.isPaused(0) || !r.a.Progress()[0].NotOwned {
			t.Error("what was lost is not paused")
		}
		other := keysOf(1, 2, 1)[0]
		r.group.add(keyed(1, "other", other), keyed(0, "late", all[0]))
		claims := o.times(func() int { return o.claims[0] })
		r.after(2 * time.Second)
		r.wantRuns("other", 1)
		r.wantRuns("waits", 0)
		r.wantRuns("x", 1)
		if more := o.times(func() int { return o.claims[0] }) - claims; more > 0 {
			t.Errorf("%d keys of what is not owned were claimed", more)
		}
		r.after(time.Minute)
		for id, n := range map[string]int{"x": 2, "y": 2, "waits": 1, "late": 1} {
			r.wantRuns(id, n)
		}
		r.wantCommitted(4)
		if r.group.joins != 1 {
			t.Errorf("joined %d times, want once: a lost partition ended the session",
				r.group.joins)
		}
		o.wantReleasedSoFar(0, 1)
	})
}

// Partitions that are lost as soon as they are owned are not asked for all the time.
func TestOwnLostAgainAndAgain(t *testing.T) {
	owned(t, 1, nil, func(o *fakeOwner, c *Config) {
		own := c.Own
		c.Own = func(ctx context.Context, at Assigned) (Ownership, error) {
			h, err := own(ctx, at)
			o.lose(0)
			return h, err
		}
	}, func(r *rig, o *fakeOwner) {
		r.group.add(message("x", ""))
		r.after(time.Minute)
		if n := len(o.askedFor(0)); n < 20 || n > 400 {
			t.Errorf("asked for %d times in a minute", n)
		}
		r.wantRuns("x", 0)
	})
}

// The partition is released when everything of it is on record and committed, once.
func TestOwnIsReleasedLast(t *testing.T) {
	handler := func(ctx context.Context, m *Message) error {
		if m.ID == "deaf" {
			<-time.After(time.Minute)
		}
		<-time.After(3 * time.Second)
		return nil
	}
	var committed int64
	var pending []string
	owned(t, 1, handler, func(o *fakeOwner, c *Config) {
		c.Workers, c.CommitEvery, o.slow = 3, time.Hour, time.Second
		o.recorded = func(int32) {
			committed = o.r.group.committedTo(0)
			for _, m := range o.r.group.log[0] {
				if o.r.times(idIn(m)) > 0 && !o.r.group.finished(m) {
					pending = append(pending, idIn(m))
				}
			}
		}
	}, func(r *rig, o *fakeOwner) {
		r.group.add(message("a", ""), message("b", ""), message("deaf", ""),
			message("unstarted", ""))
		r.after(time.Second)
		r.stop()
		r.after(20 * time.Second)
		o.wantReleased(0, 1)
		if !slices.Equal(pending, []string{"deaf"}) {
			t.Errorf("released before these were on record: %v", pending)
		}
		if committed != 2 {
			t.Errorf("released when %d was committed, want 2", committed)
		}
		r.wantRuns("unstarted", 0)
		r.after(time.Minute) // the deaf one
	})
}

// A drain ends when the partition is lost: somebody else may have it.
func TestOwnIsLostWhileDraining(t *testing.T) {
	handler := func(ctx context.Context, _ *Message) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	owned(t, 1, handler, nil, func(r *rig, o *fakeOwner) {
		r.group.add(message("x", ""))
		r.after(time.Second)
		r.stop()
		r.after(time.Second)
		o.lose(0)
		r.after(time.Second)
		if err := r.wantEnd(); err != nil {
			t.Error(err)
		}
		o.wantReleased(0, 1)
	})
}

// A consumer that is told to stop while it acquires ends at once, and gives back what it got
// all the same.
func TestOwnStopsWhileAcquiring(t *testing.T) {
	for late, released := range map[bool]int{true: 1, false: 0} {
		owned(t, 1, nil, func(o *fakeOwner, c *Config) {
			own := c.Own
			c.Own = func(ctx context.Context, at Assigned) (Ownership, error) {
				if !late {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				h, err := own(ctx, at)
				<-ctx.Done()
				return h, err
			}
		}, func(r *rig, o *fakeOwner) {
			r.group.add(message("x", ""))
			r.after(time.Minute)
			r.wantRuns("x", 0)
			r.stop()
			if err := r.wantEnd(); err != nil {
				t.Error(err)
			}
			o.wantReleased(0, released)
			if c := r.claimElsewhere(r.over(r.memory, nil), "x"); c.Outcome != dedup.Acquired ||
				c.Attempt != 1 {
				t.Errorf("the message that was waiting is %v, attempt %d", c.Outcome, c.Attempt)
			}
		})
	}
}

// What the store refuses as a whole stops the consumer: it would be paused for ever.
func TestOwnIsRefused(t *testing.T) {
	short := &dedup.InputError{Field: "Lease", Reason: "is too short"}
	for name, change := range map[string]func(*fakeOwner, *Config){
		"by Own": func(o *fakeOwner, _ *Config) { o.refuse[0] = []error{errFakeHeld, short} },
		"with nothing": func(_ *fakeOwner, c *Config) {
			c.Own = func(context.Context, Assigned) (Ownership, error) { return nil, nil } //nolint:nilnil // it is the test
		},
		"by the store":        func(o *fakeOwner, _ *Config) { o.refusal = short },
		"by the store, later": func(o *fakeOwner, c *Config) { c.ClaimAhead = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			var o *fakeOwner
			handler := func(ctx context.Context, _ *Message) error {
				o.mu.Lock()
				o.refusal = short
				o.mu.Unlock()
				return errors.New("again")
			}
			owned(t, 1, handler, func(owner *fakeOwner, c *Config) {
				o = owner
				change(owner, c)
			}, func(r *rig, _ *fakeOwner) {
				r.group.add(message("x", "k"))
				r.after(time.Minute)
				var input *dedup.InputError
				if err := r.wantEnd(); !errors.As(err, &input) ||
					!errors.Is(err, partition.ErrRefused) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// A message does not use up the patience for what is in flight elsewhere while its partition
// is not owned.
func TestOwnLostIsNotBusy(t *testing.T) {
	var parked []error
	park := func(_ context.Context, _ *Message, reason error) error {
		parked = append(parked, reason)
		return nil
	}
	failing := true
	handler := func(context.Context, *Message) error {
		if failing {
			return errors.New("again")
		}
		return nil
	}
	owned(t, 1, handler, func(_ *fakeOwner, c *Config) {
		c.Park, c.BusyTimeout = park, 10*time.Second
	}, func(r *rig, o *fakeOwner) {
		r.group.add(message("x", "k"))
		r.after(time.Second)
		o.refuseNext(0, slices.Repeat([]error{errFakeHeld}, 200)...)
		failing = false
		o.lose(0)
		r.after(10 * time.Minute)
		if r.wantCommitted(1); len(parked) > 0 {
			t.Errorf("parked: %v", parked)
		}
	})
}

// The handover has time for the release.
func TestOwnConfig(t *testing.T) {
	good := func(t *testing.T) Config {
		cfg := usable(t, Config{})
		cfg.Own = func(context.Context, Assigned) (Ownership, error) { return nil, errFakeHeld }
		cfg.Partitioner, cfg.CommitClient, cfg.Group = FNV1a,
			stubClient{config: SafeConfig(nil)}, "g"
		return cfg
	}
	for field, change := range map[string]func(*Config){
		"Partitioner":  func(c *Config) { c.Partitioner = nil },
		"CommitClient": func(c *Config) { c.CommitClient = nil },
		"Group":        func(c *Config) { c.Group = "" },
		"Fingerprint":  func(c *Config) { c.Fingerprint = true },
		"Own":          func(c *Config) { c.Deduper, c.Unclaimed = nil, true },
		"Partitioner ": func(c *Config) { c.Own = nil },
	} {
		cfg := good(t)
		change(&cfg)
		_, err := New(cfg)
		var input *dedup.InputError
		if !errors.As(err, &input) ||
			input.Field != "kafkaadapter.Config."+strings.TrimSpace(field) {
			t.Errorf("New: %v, want an InputError about %s", err, field)
		}
	}
	a, err := New(good(t))
	if err != nil {
		t.Fatal(err)
	}
	c := SafeConfig(nil)
	c.Consumer.Group.Rebalance.Timeout = 14 * time.Second
	if err := a.CheckConfig(c); err != nil {
		t.Errorf("4 s beside the drain: %v", err)
	}
	c.Consumer.Group.Rebalance.Timeout--
	wantRefusal(t, a.CheckConfig(c), "sarama.Config.Consumer.Group.Rebalance.Timeout",
		"(10s) and 4s")
}
