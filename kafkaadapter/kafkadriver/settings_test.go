package kafkadriver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

func handle(context.Context, *kafkaadapter.Message) error          { return nil }
func handleBatch(context.Context, []*kafkaadapter.Message) []error { return nil }
func handleRange(context.Context, *kafkaadapter.Range) error       { return nil }

func acquire(context.Context, kafkaadapter.Assigned) (o kafkaadapter.Ownership, err error) {
	return o, err
}

func newDeduper(t *testing.T) *dedup.Deduper {
	t.Helper()
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	return d
}

// engineOf makes an engine that claims, unless change makes it another one.
func engineOf(t *testing.T, change func(*kafkaadapter.Config)) (*Engine, error) {
	t.Helper()
	cfg := kafkaadapter.Config{Deduper: newDeduper(t), Handler: handle}
	if change != nil {
		change(&cfg)
	}
	return New("kafkatest", "g", cfg)
}

// refused is a change of a configuration, and the field that is refused for it.
type refused struct {
	field  string
	change func(*kafkaadapter.Config)
}

// wantRefused requires that each of them is refused, by the name of the field.
func wantRefused(t *testing.T, good func(*kafkaadapter.Config), rows []refused) {
	t.Helper()
	_, err := engineOf(t, good)
	require.NoError(t, err)
	for _, row := range rows {
		_, err := engineOf(t, func(c *kafkaadapter.Config) {
			good(c)
			row.change(c)
		})
		var input *dedup.InputError
		if assert.ErrorAs(t, err, &input, row.field) {
			assert.Equal(t, "kafkaadapter.Config."+row.field, input.Field)
		}
	}
}

func TestNewRefusesBadInput(t *testing.T) {
	type config = kafkaadapter.Config
	wantRefused(t, func(*config) {}, []refused{
		{"Handler", func(c *config) { c.Handler = nil }},
		{"Handler", func(c *config) {
			c.Handler, c.BatchHandler = nil, kafkaadapter.AllOrNothing(nil)
		}},
		{"BatchHandler", func(c *config) { c.BatchHandler = handleBatch }},
		{"Deduper", func(c *config) { c.Deduper = nil }},
		{"Unclaimed", func(c *config) { c.Unclaimed = true }},
		{"Order", func(c *config) { c.Order = 3 }},
		{"Scope", func(c *config) { c.Scope = "a\nb" }},
		{"Scope", func(c *config) { c.Scope = strings.Repeat("x", 256) }},
		{"RetryTopics", func(c *config) { c.RetryTopics = []string{"a", ""} }},
		{"Tuning.Workers", func(c *config) { c.Tuning.Workers = -1 }},
		{"Tuning.BatchMax", func(c *config) { c.Tuning.BatchMax = -1 }},
		{"Tuning.ClaimAhead", func(c *config) { c.Tuning.ClaimAhead = -1 }},
		{"Tuning.BatchWait", func(c *config) { c.Tuning.BatchWait = -1 }},
		{"Tuning.HighWater", func(c *config) { c.Tuning.HighWater = -5 }},
		{"Tuning.LowWater", func(c *config) { c.Tuning.LowWater = -1 }},
		{"Tuning.LowWater", func(c *config) { c.Tuning.LowWater, c.Tuning.HighWater = 10, 10 }},
		{"Tuning.LowWater", func(c *config) { c.Tuning.LowWater = 5000 }},
		{"Tuning.CommitEvery", func(c *config) { c.Tuning.CommitEvery = -1 }},
		{"Tuning.CommitCount", func(c *config) { c.Tuning.CommitCount = -1 }},
		{"Tuning.Drain", func(c *config) { c.Tuning.Drain = -1 }},
		{"Attempts.Timeout", func(c *config) { c.Attempts.Timeout = -1 }},
		{"Attempts.Max", func(c *config) { c.Attempts.Max = -1 }},
		{"Attempts.Max", func(c *config) { c.Attempts.Max = 1 }},
		{"Attempts.BusyTimeout", func(c *config) { c.Attempts.BusyTimeout = -1 }},
		{"Attempts.RetryBase", func(c *config) { c.Attempts.RetryBase = -1 }},
		{"Attempts.RetryMax", func(c *config) { c.Attempts.RetryMax = -1 }},
		{"Attempts.RetryBase", func(c *config) {
			c.Attempts.RetryBase, c.Attempts.RetryMax = time.Minute, time.Second
		}},
		{"Allow.TakeOver", func(c *config) {
			c.Deduper, c.Unclaimed, c.Allow.TakeOver = nil, true, true
		}},
	})
}

func TestNewRefusesRanges(t *testing.T) {
	type config = kafkaadapter.Config
	wantRefused(t, func(c *config) {
		c.Deduper, c.Handler, c.RangeHandler = nil, nil, handleRange
		c.Unclaimed, c.Order = true, kafkaadapter.ByPartition
	}, []refused{
		{"Order", func(c *config) { c.Order = kafkaadapter.ByKey }},
		{"Order", func(c *config) { c.Order = kafkaadapter.Unordered }},
		{"Unclaimed", func(c *config) { c.Unclaimed, c.Deduper = false, newDeduper(t) }},
		{"Handler", func(c *config) { c.RangeHandler = nil }},
		{"RangeHandler", func(c *config) { c.Handler = handle }},
		{"RangeHandler", func(c *config) { c.BatchHandler = handleBatch }},
		{"Attempts.Max", func(c *config) { c.Attempts.Max = 1 }},
		{"Tuning.BatchMax", func(c *config) { c.Tuning.BatchMax = -1 }},
	})
}

func TestNewRefusesOwning(t *testing.T) {
	type config = kafkaadapter.Config
	wantRefused(t, func(c *config) {
		c.Own = &kafkaadapter.Owning{Acquire: acquire, Partitioner: kafkaadapter.FNV1a}
	}, []refused{
		{"Own.Partitioner", func(c *config) { c.Own.Partitioner = nil }},
		{"Own.Acquire", func(c *config) { c.Own.Acquire = nil }},
		{"Fingerprint", func(c *config) { c.Fingerprint = true }},
		{"Own", func(c *config) { c.Deduper, c.Unclaimed = nil, true }},
		{"TopicName", func(c *config) { c.TopicName = func(s string) string { return s } }},
		{"RetryTopics", func(c *config) { c.RetryTopics = []string{"retry"} }},
	})
}

func TestDefaults(t *testing.T) {
	e, err := engineOf(t, nil)
	require.NoError(t, err)
	assert.Equal(t, kafkaadapter.Tuning{Workers: 32, BatchMax: 256,
		BatchWait: 2 * time.Millisecond, ClaimAhead: 512, HighWater: 4096, LowWater: 2048,
		CommitEvery: 250 * time.Millisecond, CommitCount: 1000, Drain: 10 * time.Second}, e.Tuning)
	assert.Equal(t, kafkaadapter.Attempts{RetryBase: 100 * time.Millisecond,
		RetryMax: 30 * time.Second, BusyTimeout: 15 * time.Minute}, e.Attempts)
	assert.Equal(t, kafkaadapter.ByKey, e.Order)
	assert.NotNil(t, e.ID)
	assert.NotNil(t, e.Logger)

	e, err = engineOf(t, func(c *kafkaadapter.Config) {
		c.Attempts.RetryMax, c.Tuning.HighWater = time.Millisecond, 1
	})
	require.NoError(t, err)
	assert.Equal(t, time.Millisecond, e.Attempts.RetryBase, "of a RetryMax that is below it")
	assert.Zero(t, e.Tuning.LowWater, "of a HighWater of 1")
	e, err = engineOf(t, func(c *kafkaadapter.Config) { c.Attempts.RetryBase = time.Hour })
	require.NoError(t, err)
	assert.Equal(t, time.Hour, e.Attempts.RetryMax, "of a RetryBase that is above it")
}
