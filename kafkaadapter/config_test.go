package kafkaadapter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

// newAdapter makes an Adapter, with what it cannot do without.
func newAdapter(t *testing.T, cfg Config) *Adapter {
	t.Helper()
	a, err := New(usable(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func usable(t *testing.T, cfg Config) Config {
	t.Helper()
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Deduper = d
	cfg.Handler = func(context.Context, *Message) error { return nil }
	return cfg
}

func TestNewRefusesBadInput(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"Handler", func(c *Config) { c.Handler = nil }},
		{"Deduper", func(c *Config) { c.Deduper = nil }},
		{"Unclaimed", func(c *Config) { c.Unclaimed = true }},
		{"Order", func(c *Config) { c.Order = 3 }},
		{"Scope", func(c *Config) { c.Scope = "a\nb" }},
		{"Scope", func(c *Config) { c.Scope = strings.Repeat("x", 256) }},
		{"Workers", func(c *Config) { c.Workers = -1 }},
		{"BatchMax", func(c *Config) { c.BatchMax = -1 }},
		{"ClaimAhead", func(c *Config) { c.ClaimAhead = -1 }},
		{"BatchWait", func(c *Config) { c.BatchWait = -1 }},
		{"HighWater", func(c *Config) { c.HighWater = -5 }},
		{"LowWater", func(c *Config) { c.LowWater = -1 }},
		{"LowWater", func(c *Config) { c.LowWater, c.HighWater = 10, 10 }},
		{"LowWater", func(c *Config) { c.LowWater = 5000 }},
		{"CommitEvery", func(c *Config) { c.CommitEvery = -1 }},
		{"CommitCount", func(c *Config) { c.CommitCount = -1 }},
		{"Drain", func(c *Config) { c.Drain = -1 }},
		{"Timeout", func(c *Config) { c.Timeout = -1 }},
		{"RetryBase", func(c *Config) { c.RetryBase = -1 }},
		{"RetryMax", func(c *Config) { c.RetryMax = -1 }},
		{"RetryBase", func(c *Config) { c.RetryBase, c.RetryMax = time.Minute, time.Second }},
	} {
		cfg := usable(t, Config{})
		c.change(&cfg)
		_, err := New(cfg)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != "kafkaadapter.Config."+c.field {
			t.Errorf("New: %v, want an InputError about kafkaadapter.Config.%s", err, c.field)
		}
	}
}

func TestDefaults(t *testing.T) {
	cfg := newAdapter(t, Config{}).cfg
	if cfg.Workers != 32 || cfg.BatchMax != 256 || cfg.BatchWait != 2*time.Millisecond || cfg.ClaimAhead != 512 || cfg.HighWater != 4096 || cfg.LowWater != 2048 ||
		cfg.CommitEvery != 250*time.Millisecond || cfg.CommitCount != 1000 || cfg.Drain != 10*time.Second ||
		cfg.RetryBase != 100*time.Millisecond || cfg.RetryMax != 30*time.Second || cfg.Order != ByKey {
		t.Errorf("defaults are not those that are documented: %+v", cfg)
	}
	if low := newAdapter(t, Config{RetryMax: time.Millisecond}).cfg; low.RetryBase != time.Millisecond {
		t.Errorf("RetryBase is %v for a RetryMax of 1 ms", low.RetryBase)
	}
	if high := newAdapter(t, Config{RetryBase: time.Hour}).cfg; high.RetryMax != time.Hour {
		t.Errorf("RetryMax is %v for a RetryBase of 1 h", high.RetryMax)
	}
	if one := newAdapter(t, Config{HighWater: 1}).cfg; one.LowWater != 0 {
		t.Errorf("LowWater is %d for a HighWater of 1", one.LowWater)
	}
}

func TestSafeConfigPassesTheCheck(t *testing.T) {
	a := newAdapter(t, Config{})
	bad := sarama.NewConfig()
	bad.Version = sarama.V0_10_2_0
	bad.Consumer.Offsets.AutoCommit.Enable = true
	for name, c := range map[string]*sarama.Config{"nil": nil, "defaults": sarama.NewConfig(), "bad": bad} {
		safe := SafeConfig(c)
		if c != nil && safe != c {
			t.Errorf("%s: SafeConfig returned another configuration", name)
		}
		if err := a.CheckConfig(safe); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := safe.Validate(); err != nil {
			t.Errorf("%s: sarama refuses it: %v", name, err)
		}
	}
	newer := sarama.NewConfig()
	newer.Version = sarama.V3_6_0_0
	if SafeConfig(newer).Version != sarama.V3_6_0_0 {
		t.Error("SafeConfig lowered the version")
	}
}

func TestCheckConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*sarama.Config)
		skip   bool // allowed with AllowSkip
	}{
		{"Consumer.Offsets.AutoCommit.Enable", func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = true }, false},
		{"Consumer.Return.Errors", func(c *sarama.Config) { c.Consumer.Return.Errors = false }, false},
		{"Consumer.Offsets.Initial", func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest }, true},
		{"Consumer.Group.ResetInvalidOffsets", func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = true }, true},
		{"Consumer.Group.Rebalance.Timeout", func(c *sarama.Config) { c.Consumer.Group.Rebalance.Timeout = 10 * time.Second }, false},
		{"Consumer.Group.Rebalance.Timeout", func(c *sarama.Config) { c.Consumer.Group.Rebalance.Timeout = 13*time.Second - 1 }, false},
		{"Consumer.Fetch.Max", func(c *sarama.Config) { c.Consumer.Fetch.Max = 1 << 20 }, false},
		{"Version", func(c *sarama.Config) { c.Version = sarama.V0_10_2_0 }, false},
	} {
		sc := SafeConfig(nil)
		c.change(sc)
		err := newAdapter(t, Config{}).CheckConfig(sc)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != "sarama.Config."+c.field {
			t.Errorf("CheckConfig: %v, want an InputError about sarama.Config.%s", err, c.field)
		}
		if err := newAdapter(t, Config{AllowSkip: true}).CheckConfig(sc); (err == nil) != c.skip {
			t.Errorf("CheckConfig with AllowSkip: %v about %s", err, c.field)
		}
	}
	if err := newAdapter(t, Config{}).CheckConfig(nil); err == nil {
		t.Error("CheckConfig accepted nil")
	}
	just := SafeConfig(nil)
	just.Consumer.Group.Rebalance.Timeout = 13 * time.Second
	if err := newAdapter(t, Config{}).CheckConfig(just); err != nil {
		t.Errorf("CheckConfig: %v", err)
	}
}
