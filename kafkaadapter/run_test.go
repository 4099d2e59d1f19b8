package kafkaadapter

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func TestRunRefusesBadInput(t *testing.T) {
	a := newAdapter(t, Config{})
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
		err := a.Run(c.ctx, c.group, c.topics)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != c.field {
			t.Errorf("Run: %v, want an InputError about %s", err, c.field)
		}
	}
	if group.joins != 0 {
		t.Error("the group was joined all the same")
	}
}

func TestConsumeClaimNeedsSetup(t *testing.T) {
	a := newAdapter(t, Config{})
	s := &fakeSession{ctx: t.Context()}
	if err := a.ConsumeClaim(s, &fakeClaim{session: s}); err == nil ||
		!strings.Contains(err.Error(), "without Setup") {
		t.Errorf("ConsumeClaim: %v", err)
	}
	if err := a.Cleanup(s); err != nil {
		t.Errorf("Cleanup: %v", err)
	}
}

func TestRunOnceAtATime(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.after(time.Second)
		if err := r.a.Run(context.Background(), r.group, []string{topic}); !errors.Is(err,
			ErrRunning) {
			t.Errorf("the second Run: %v", err)
		}
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Errorf("the first Run: %v", err)
		}
		// One after the other is fine.
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.a.Run(ctx, r.group, []string{topic}) }()
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.wantCommitted(1)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the third Run: %v", err)
		}
	})
}

// Errors of the group are told and followed by another attempt, less and less often;
// a closed group ends Run.
func TestRunJoinsAgainAfterErrors(t *testing.T) {
	var mu sync.Mutex
	var told []error
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		r.group.refuse = slices.Repeat([]error{errBroken}, 8)
		c.Observer.GroupError = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		}
	}, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(30 * time.Second)
		r.wantCommitted(1)
		mu.Lock()
		if len(told) != 8 || !errors.Is(told[0], errBroken) {
			t.Errorf("told %v", told)
		}
		mu.Unlock()
		r.group.mu.Lock()
		r.group.refuse = []error{sarama.ErrClosedConsumerGroup}
		r.group.mu.Unlock()
		r.group.rebalance()
		r.after(10 * time.Second)
		if err := r.wantEnd(); !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			t.Errorf("Run: %v", err)
		}
	})
}

// Sessions that end at once, without an error, are not repeated in a tight loop; and not
// so late that the others' rebalance waits for this member.
func TestShortSessionsAreSpread(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		c.RetryMax = time.Hour
		r.group.refuse = slices.Repeat([]error{nil}, 1000)
	}, func(r *rig) {
		r.after(10 * time.Minute)
		if n := r.group.joins; n < 300 || n > 1000 {
			t.Errorf("joined %d times in 10 minutes, want about one a second", n)
		}
	})
}

// What the group says at the very end, such as about the last commit, is told too.
func TestLastErrorsAreTold(t *testing.T) {
	var mu sync.Mutex
	var told []error
	inBubble(t, 1, nil, func(_ *rig, c *Config) {
		c.Observer.GroupError = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		}
	}, func(r *rig) {
		r.after(time.Second)
		r.group.onCommit = func() { r.group.errs <- errBroken }
		r.group.add(message("x", "a"))
		r.after(time.Millisecond * 10)
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) == 0 {
			t.Error("nothing was told")
		}
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
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// An offset that goes back ends the session, with an error that names it; the messages
// that were taken before it are given back.
func TestOffsetThatGoesBack(t *testing.T) {
	var mu sync.Mutex
	var told []string
	inBubble(t, 1, nil, func(_ *rig, c *Config) {
		c.Observer.GroupError = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err.Error())
		}
	}, func(r *rig) {
		r.after(time.Second)
		c := r.group.session.claims[0]
		c.messages <- at(0, 5, message("x", "a"))
		c.messages <- at(0, 5, message("x", "a"))
		r.after(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 1 || !strings.Contains(told[0], "orders/0") ||
			!strings.Contains(told[0], "5 after 5") {
			t.Errorf("told %q", told)
		}
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
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "retried" && !failed {
			failed = true
			panic("once")
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		c.Observer = Observer{
			Delivered:  func(*sarama.ConsumerMessage) { count("delivered") },
			Skipped:    func(*Message, driver.Cause, time.Duration) { count("skipped") },
			Handled:    func(*Message, time.Duration, error) { count("handled") },
			Waiting:    func(*Message) { count("waiting") },
			Parked:     func(*Message, error) { count("parked") },
			Committing: func(string, int32, int64) { count("committing") },
			Revoked:    func(string, int32, int, int) { count("revoked") },
			Paused:     func(string, int32, bool) { count("paused") },
			GroupError: func(error) { count("group error") },
		}
		c.Park = func(context.Context, *Message, error) error { return nil }
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
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, what := range []string{"delivered", "skipped", "handled", "waiting", "parked",
			"committing", "revoked", "paused", "group error"} {
			if seen[what] == 0 {
				t.Errorf("%s was not observed", what)
			}
		}
		if seen["delivered"] != 6 || seen["handled"] != 5 || seen["skipped"] != 1 ||
			seen["parked"] != 1 || seen["paused"] != 2 {
			t.Errorf("observed %v", seen)
		}
		for _, text := range []string{"handler panicked", "store cannot be asked", "topic=orders",
			"partition=0", "offset=2"} {
			if !strings.Contains(logged.String(), text) {
				t.Errorf("not in the log: %s", text)
			}
		}
	})
}
