package franz

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
)

func nothing(context.Context, *Message) error { return nil }

// A configuration that cannot be meant is refused with the field's name.
func TestBadConfig(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Config){
		"Handler": func(c *Config) { c.Handler = nil },
		"BatchHandler": func(c *Config) {
			c.BatchHandler = func(context.Context, []*Message) []error { return nil }
		},
		"Deduper":   func(c *Config) { c.Deduper = nil },
		"Unclaimed": func(c *Config) { c.Unclaimed = true },
		"TakeOverOlderGeneration": func(c *Config) {
			c.Deduper, c.Unclaimed, c.TakeOverOlderGeneration = nil, true, true
		},
		"MaxAttempts": func(c *Config) { c.MaxAttempts = 1 },
		"Order":       func(c *Config) { c.Order = 9 },
		"Scope":       func(c *Config) { c.Scope = "\x00" },
		"LowWater":    func(c *Config) { c.HighWater, c.LowWater = 5, 5 },
		"RetryBase": func(c *Config) {
			c.RetryBase, c.RetryMax = time.Second, time.Millisecond
		},
		"Drain":   func(c *Config) { c.Drain = -1 },
		"Workers": func(c *Config) { c.Workers = -1 },
	} {
		cfg := Config{Deduper: d, Handler: nothing}
		change(&cfg)
		_, err := New(cfg)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != "franz.Config."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := New(Config{Deduper: d, Handler: nothing}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// Options under which messages would be lost are refused by their names, before the group
// hears of this member.
func TestBadOptions(t *testing.T) {
	r := newRig(t, cooperative, 1)
	for field, opts := range map[string][]kgo.Opt{
		"kgo.ConsumeTopics": {kgo.ConsumerGroup(group)},
		"kgo.BlockRebalanceOnPoll": {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
			kgo.BlockRebalanceOnPoll()},
		"kgo.TransactionalID": {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
			kgo.TransactionalID("t")},
		"kgo.ConsumeStartOffset": {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
			kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd())},
		"kgo.ConsumeResetOffset": {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())},
		"kgo.RebalanceTimeout": {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
			kgo.RebalanceTimeout(3 * time.Second)},
		"Options":   {nil},
		"Options ":  {kgo.ConsumeTopics(orders)},
		"Options  ": {kgo.ShareGroup(group), kgo.ConsumeTopics(orders)},
		"Options   ": {kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
			kgo.AutoCommitMarks()},
	} {
		c, err := New(r.config(&link{Store: r.store}, nil))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Run(t.Context(), append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	c, err := New(r.config(&link{Store: r.store}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(nil); err == nil { //nolint:staticcheck // on purpose
		t.Error("ran without a context")
	}
	if err := c.Run(t.Context(), kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders),
		kgo.MaxVersions(nil), kgo.FetchMaxWait(-1)); err == nil {
		t.Error("kgo's own check was passed over")
	}
	if info := r.cluster.GroupInfo(group); info != nil && len(info.Members) > 0 {
		t.Errorf("the group has heard of a member: %v", info)
	}
}

// What skips messages is allowed to those who say so.
func TestAllowSkip(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.early = true
	r.produce(0, 0, 5)
	started := make(chan struct{})
	m := r.join(nil, func(c *Config) {
		c.AllowSkip = true
		c.Observer.Assigned = func(string, int32, int32) { close(started) }
	}, kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()))
	<-started
	n := 0
	r.eventually(func() (bool, string) { // the end may be asked for after some of them
		r.produce(0, 100+n, 1)
		n++
		return r.totalEffects() > 0, "nothing arrives"
	})
	r.committed()
	m.leave()
	if r.effects["evt_000000"] != 0 {
		t.Error("a message from before the start was not skipped")
	}
}

// One Run at a time, and another one after it.
func TestRunsOnce(t *testing.T) {
	r := newRig(t, cooperative, 1)
	running := make(chan struct{}, 2)
	cfg := r.config(&link{Store: r.store}, func(context.Context, *Message) error {
		running <- struct{}{}
		return nil
	})
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := newLine()
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx, r.options(l)...) }()
		r.produce(0, i, 1)
		<-running
		if err := c.Run(ctx, r.options(l)...); !errors.Is(err, ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	r.committed()
	r.once(2)
}

// A committed offset that the log does not have is an error that goes on until somebody
// decides, and skips nothing.
func TestOffsetOutOfRange(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 10)
	m := r.join(nil, nil)
	r.committed()
	m.leave()
	r.produce(0, 10, 10)
	if err := r.cluster.DeleteRecords(orders, 0, 15); err != nil {
		t.Fatal(err)
	}
	m = r.join(nil, func(c *Config) { c.Observer.GroupError = func(error) { r.note("error") } })
	r.eventually(func() (bool, string) { return r.noted("error") >= 2, "no error is told" })
	m.leave()
	r.once(10)
}
