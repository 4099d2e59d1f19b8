package kafkasarama

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

func TestRunRefusesBadInput(t *testing.T) {
	consumer := consumerOf(t, kafkaadapter.Config{})
	group := newFakeGroup(t, 1)
	for _, c := range []struct {
		field  string
		ctx    context.Context //nolint:containedctx // the row is a call
		group  sarama.ConsumerGroup
		topics []string
	}{
		{"Context", nil, group, []string{topic}},
		{"Group", t.Context(), nil, []string{topic}},
		{"Topics", t.Context(), group, nil},
		{"Topics", t.Context(), group, []string{topic, ""}},
	} {
		wantRefusal(t, consumer.Run(c.ctx, c.group, c.topics), c.field, "")
	}
	assert.Zero(t, group.joins, "the group was joined all the same")
}

func TestConsumeClaimNeedsSetup(t *testing.T) {
	a := handler{consumerOf(t, kafkaadapter.Config{})}
	s := &fakeSession{ctx: t.Context()}
	require.ErrorContains(t, a.ConsumeClaim(s, &fakeClaim{session: s}), "without Setup")
	assert.NoError(t, a.Cleanup(s))
}

func TestRunOnceAtATime(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.after(time.Second)
		err := r.consumer.Run(context.Background(), r.group, []string{topic})
		require.ErrorIs(r.t, err, kafkaadapter.ErrRunning)
		r.stop()
		r.wantStop()
		// One after the other is fine.
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.consumer.Run(ctx, r.group, []string{topic}) }()
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.wantCommitted(1)
		stop()
		assert.NoError(t, <-ended)
	})
}

// Run reports errors of the group and joins again, less and less often. A closed group ends Run.
func TestRunJoinsAgainAfterErrors(t *testing.T) {
	var told toldErrors
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		r.group.refuse = slices.Repeat([]error{errBroken}, 8)
		c.Observer.GroupError = told.add
	}, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(30 * time.Second)
		r.wantCommitted(1)
		assert.Equal(t, slices.Repeat([]error{errBroken}, 8), told.all())
		r.group.mu.Lock()
		r.group.refuse = []error{sarama.ErrClosedConsumerGroup}
		r.group.mu.Unlock()
		r.group.rebalance()
		r.after(10 * time.Second)
		require.ErrorIs(r.t, r.wantEnd(), sarama.ErrClosedConsumerGroup)
	})
}

// After sessions that end at once without an error Run joins again neither in a tight loop, nor so
// late that the rebalance of the other members waits for this one.
func TestShortSessionsAreSpread(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Attempts.RetryMax = time.Hour
		r.group.refuse = slices.Repeat([]error{nil}, 1000)
	}, func(r *rig) {
		r.after(10 * time.Minute)
		n := r.group.joins
		assert.True(t, 300 <= n && n <= 1000, "joined %d times in 10 minutes", n)
	})
}

// Errors of the group at the very end, such as of the last commit, are also reported.
func TestLastErrorsAreTold(t *testing.T) {
	var told toldErrors
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.GroupError = told.add
	}, func(r *rig) {
		r.after(time.Second)
		r.coordinator.set(func() {
			r.coordinator.onCommit = func() { r.group.errs <- errBroken }
		})
		r.group.add(message("x", "a"))
		r.after(time.Millisecond * 10)
		r.stop()
		r.wantStop()
		assert.NotEmpty(t, told.all())
	})
}

// Run ends when the group's Errors channel has been closed under it.
func TestClosedErrorsChannel(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		close(r.group.errs)
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.wantCommitted(1)
		r.stop()
		r.wantStop()
	})
}

// An offset that goes back ends the session, with an error that names it; the messages
// that were taken before it are given back.
func TestOffsetThatGoesBack(t *testing.T) {
	var told toldErrors
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.GroupError = told.add
	}, func(r *rig) {
		r.after(time.Second)
		c := r.group.session.claims[0]
		c.messages <- at(0, 5, message("x", "a"))
		c.messages <- at(0, 5, message("x", "a"))
		r.after(time.Minute)
		require.Len(r.t, told.all(), 1)
		assert.ErrorContains(t, told.all()[0], "orders/0")
		assert.ErrorContains(t, told.all()[0], "5 after 5")
		r.wantRunning()
	})
}

// Every hook is called, and every log line has its position.
func TestObserverAndLogger(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen[what]++
	}
	var logged strings.Builder
	failed := false
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "retried" && !failed {
			failed = true
			panic("once")
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		c.Observer = kafkaadapter.Observer{
			Delivered: func(*kafkaadapter.Message) { count("delivered") },
			Skipped: func(*kafkaadapter.Message, driver.Cause, time.Duration) {
				count("skipped")
			},
			Handled:    func(*kafkaadapter.Message, time.Duration, error) { count("handled") },
			Waiting:    func(*kafkaadapter.Message) { count("waiting") },
			Parked:     func(*kafkaadapter.Message, error) { count("parked") },
			Committing: func(string, int32, int64) { count("committing") },
			Revoked:    func(string, int32, int, int) { count("revoked") },
			Paused:     func(string, int32, bool) { count("paused") },
			GroupError: func(error) { count("group error") },
		}
		c.Park = func(context.Context, *kafkaadapter.Message, error) error { return nil }
	}, func(r *rig) {
		r.claimElsewhere(r.otherProcess(), "waits")
		r.group.finished = nil // one has no id
		r.group.add(message("once", "a"), message("once", "a"), message("retried", "b"),
			message("waits", "c"), &sarama.ConsumerMessage{})
		r.after(2 * lease)
		r.outage()
		r.group.add(message("after", "a"))
		r.after(time.Minute)
		r.heal()
		r.after(time.Minute)
		r.group.errs <- errBroken
		r.stop()
		r.wantStop()
		mu.Lock()
		defer mu.Unlock()
		for _, what := range []string{"delivered", "skipped", "handled", "waiting", "parked",
			"committing", "revoked", "paused", "group error"} {
			assert.Positive(t, seen[what], what)
		}
		for what, n := range map[string]int{"delivered": 6, "handled": 5, "skipped": 1,
			"parked": 1, "paused": 2} {
			assert.Equal(t, n, seen[what], what)
		}
		for _, text := range []string{"handler panicked", "store cannot be asked", "topic=orders",
			"partition=0", "offset=2"} {
			assert.Contains(t, logged.String(), text)
		}
	})
}
