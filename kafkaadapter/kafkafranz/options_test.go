package kafkafranz

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// wantInput wants an error that names a field.
func wantInput(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	if assert.ErrorAs(t, err, &input, field) {
		assert.Equal(t, field, input.Field, "%v", err)
	}
}

func nothing(context.Context, *kafkaadapter.Message) error { return nil }

func notOwned(context.Context, kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
	return nil, errCut
}

// A configuration that makes no sense is refused with the field's name.
func TestBadConfig(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second})
	require.NoError(t, err)
	good := kafkaadapter.Config{Deduper: d, Handler: nothing}
	for field, change := range map[string]func(*kafkaadapter.Config){
		"Handler": func(c *kafkaadapter.Config) { c.Handler = nil },
		"BatchHandler": func(c *kafkaadapter.Config) {
			c.BatchHandler = func(context.Context, []*kafkaadapter.Message) []error { return nil }
		},
		"Deduper":   func(c *kafkaadapter.Config) { c.Deduper = nil },
		"Unclaimed": func(c *kafkaadapter.Config) { c.Unclaimed = true },
		"Allow.TakeOver": func(c *kafkaadapter.Config) {
			c.Deduper, c.Unclaimed, c.Allow.TakeOver = nil, true, true
		},
		"Own.Partitioner": func(c *kafkaadapter.Config) {
			c.Own = &kafkaadapter.Owning{Acquire: notOwned}
		},
		"Attempts.Max": func(c *kafkaadapter.Config) { c.Attempts.Max = 1 },
		"Order":        func(c *kafkaadapter.Config) { c.Order = 9 },
		"Scope":        func(c *kafkaadapter.Config) { c.Scope = "\x00" },
		"Tuning.LowWater": func(c *kafkaadapter.Config) {
			c.Tuning.HighWater, c.Tuning.LowWater = 5, 5
		},
		"Attempts.RetryBase": func(c *kafkaadapter.Config) {
			c.Attempts.RetryBase, c.Attempts.RetryMax = time.Second, time.Millisecond
		},
		"Tuning.Drain":   func(c *kafkaadapter.Config) { c.Tuning.Drain = -1 },
		"Tuning.Workers": func(c *kafkaadapter.Config) { c.Tuning.Workers = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := New(group, cfg)
		wantInput(t, err, "kafkaadapter.Config."+field)
	}
	_, err = New("", good)
	wantInput(t, err, "group")
	_, err = New(group, good)
	require.NoError(t, err, "the defaults")
}

// Options under which messages would be lost are refused by their names, before the member joins.
func TestBadOptions(t *testing.T) {
	r := newRig(t, 1)
	run := func(ctx context.Context, opts ...kgo.Opt) error {
		cfg := r.config(&link{Store: r.store}, nil)
		cfg.Observer.Assigned = func(string, int32, int32) { r.note("assigned") }
		c, err := New(group, cfg)
		require.NoError(t, err)
		return c.Run(ctx, append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
	}
	for field, opts := range map[string][]kgo.Opt{
		"kgo.ConsumeTopics":        nil,
		"kgo.BlockRebalanceOnPoll": {kgo.BlockRebalanceOnPoll()},
		"kgo.TransactionalID":      {kgo.TransactionalID("t")},
		"kgo.ConsumeStartOffset":   {kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd())},
		"kgo.ConsumeResetOffset":   {kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())},
		"kgo.RebalanceTimeout":     {kgo.RebalanceTimeout(3 * time.Second)},
		"Options":                  {nil},
		"Options ":                 {kgo.AutoCommitMarks()},
	} {
		if opts != nil {
			opts = append(opts, kgo.ConsumeTopics(orders))
		}
		wantInput(t, run(t.Context(), opts...), strings.TrimSpace(field))
	}
	wantInput(t, run(nil), "Context")
	for what, opt := range map[string]kgo.Opt{"ShareGroup": kgo.ShareGroup(group),
		"max fetch wait": kgo.FetchMaxWait(-1)} {
		require.ErrorContains(t, run(t.Context(), kgo.ConsumeTopics(orders), opt), what,
			"kgo's own check")
	}
	cfg := r.config(&link{Store: r.store}, nil)
	cfg.Own = &kafkaadapter.Owning{Acquire: notOwned, Partitioner: kafkaadapter.Murmur2}
	cfg.Tuning.Drain = time.Second + time.Millisecond // and 4 s, in a rebalance of 5 s
	c, err := New(group, cfg)
	require.NoError(t, err)
	wantInput(t, c.Run(t.Context(), r.options(newLine())...), "kgo.RebalanceTimeout")
	if info := r.cluster.GroupInfo(group); info != nil {
		assert.Empty(t, info.Members, "the group has heard of a member")
	}
	assert.Zero(t, r.noted("assigned"), "partitions that the observer was told of")
}

// Options that skip messages are allowed with Allow.Skip.
func TestAllowSkip(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, 0, 5)
	started := make(chan struct{})
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Allow.Skip = true
		c.Observer.Assigned = func(string, int32, int32) { close(started) }
	}, kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()))
	<-started
	n := 0
	r.eventually(func() (bool, string) { // the client may look up the end after some of these
		r.produce(0, 100+n, 1)
		n++
		return r.totalEffects() > 0, "nothing arrives"
	})
	r.committed()
	m.leave()
	assert.Zero(t, r.effects["evt_000000"], "a message from before the start was not skipped")
}
