package kafkaadapter

import (
	"context"
	"crypto/tls"
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
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Deduper = d
	if cfg.Scope == "" && cfg.Group == "" {
		cfg.Scope = "s"
	}
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
	if cfg.Workers != 32 || cfg.BatchMax != 256 || cfg.BatchWait != 2*time.Millisecond ||
		cfg.ClaimAhead != 512 || cfg.HighWater != 4096 || cfg.LowWater != 2048 ||
		cfg.CommitEvery != 250*time.Millisecond || cfg.CommitCount != 1000 ||
		cfg.Drain != 10*time.Second ||
		cfg.RetryBase != 100*time.Millisecond || cfg.RetryMax != 30*time.Second ||
		cfg.Order != ByKey {
		t.Errorf("defaults are not those that are documented: %+v", cfg)
	}
	if low := newAdapter(t,
		Config{RetryMax: time.Millisecond}).cfg; low.RetryBase != time.Millisecond {
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
	for name, c := range map[string]*sarama.Config{"nil": nil, "defaults": sarama.NewConfig(),
		"bad": bad} {
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
	const skips = true // allowed with AllowSkip
	for _, c := range []struct {
		field, reason string
		skip          bool
		change        func(*sarama.Config)
	}{
		{"Consumer.Offsets.AutoCommit.Enable", "not after the record", !skips,
			func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = true }},
		{"Consumer.Return.Errors", "failed commits would go unseen",
			!skips, func(c *sarama.Config) { c.Consumer.Return.Errors = false }},
		{"Consumer.Offsets.Initial", "before the first commit would be skipped",
			skips, func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest }},
		{"Consumer.Offsets.Initial", "AllowSkip", skips, func(c *sarama.Config) {
			c.Consumer.Offsets.Initial = 0
		}},
		{"Consumer.Group.ResetInvalidOffsets", "an invalid offset would silently skip", skips,
			func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = true }},
		{"Consumer.Group.Rebalance.Timeout",
			"is 10s, less than kafkaadapter.Config.Drain (10s) and 3s", !skips,
			func(c *sarama.Config) { c.Consumer.Group.Rebalance.Timeout = 10 * time.Second }},
		{"Consumer.Group.Rebalance.Timeout", "given away while handlers run", !skips,
			func(c *sarama.Config) { c.Consumer.Group.Rebalance.Timeout = 13*time.Second - 1 }},
		{"Consumer.MaxWaitTime", "is 21s: a heartbeat may wait for two polls",
			!skips, func(c *sarama.Config) { c.Consumer.MaxWaitTime = 21 * time.Second }},
		{"Consumer.MaxWaitTime",
			"Interval (44.95s) that is not below Consumer.Group.Session.Timeout (45s)", !skips,
			func(c *sarama.Config) {
				c.Consumer.Group.Heartbeat.Interval = 44950 * time.Millisecond
			}},
		{"Consumer.Fetch.Max", "is 1048576: a larger message would be skipped",
			!skips, func(c *sarama.Config) { c.Consumer.Fetch.Max = 1 << 20 }},
		{"Version", "headers, and with them message ids, need 0.11",
			!skips, func(c *sarama.Config) { c.Version = sarama.V0_10_2_0 }},
	} {
		sc := SafeConfig(nil)
		c.change(sc)
		wantRefusal(t, newAdapter(t, Config{}).CheckConfig(sc), "sarama.Config."+c.field, c.reason)
		if err := newAdapter(t, Config{AllowSkip: true}).CheckConfig(sc); (err == nil) != c.skip {
			t.Errorf("CheckConfig with AllowSkip: %v about %s", err, c.field)
		}
	}
	wantRefusal(t, newAdapter(t, Config{}).CheckConfig(nil), "sarama.Config", "is nil")
	just := SafeConfig(nil)
	just.Consumer.Group.Rebalance.Timeout, just.Consumer.MaxWaitTime = 13*time.Second,
		21*time.Second-time.Millisecond
	if err := newAdapter(t, Config{}).CheckConfig(just); err != nil {
		t.Errorf("CheckConfig: %v", err)
	}
}

// wantRefusal wants an InputError about a field, with a part of the reason.
func wantRefusal(t *testing.T, err error, field, reason string) {
	t.Helper()
	var input *dedup.InputError
	if !errors.As(err, &input) || input.Field != field || !strings.Contains(input.Reason, reason) {
		t.Errorf("%v; want an InputError about %s with %q", err, field, reason)
	}
}

// What is not SafeConfig's is the user's: it comes out as it went in.
func TestSafeConfigLeavesTheRestAlone(t *testing.T) {
	interceptor := func(c *sarama.Config) any { return c.Consumer.Interceptors[0] }
	secret, roots := "secret", &tls.Config{ServerName: "broker", MinVersion: tls.VersionTLS13}
	for name, row := range map[string]struct {
		set  func(*sarama.Config)
		get  func(*sarama.Config) any
		want any
	}{
		"ClientID": {func(c *sarama.Config) {
			c.ClientID = "billing"
		}, func(c *sarama.Config) any { return c.ClientID }, "billing"},
		"RackID": {func(c *sarama.Config) {
			c.RackID = "eu-1a"
		}, func(c *sarama.Config) any { return c.RackID }, "eu-1a"},
		"InstanceId": {func(c *sarama.Config) {
			c.Consumer.Group.InstanceId = "pod-1"
		}, func(c *sarama.Config) any { return c.Consumer.Group.InstanceId }, "pod-1"},
		"consumer interceptor": {func(c *sarama.Config) {
			c.Consumer.Interceptors = []sarama.ConsumerInterceptor{passOn{}}
		}, interceptor, passOn{}},
		"producer interceptor": {func(c *sarama.Config) {
			c.Producer.Interceptors = []sarama.ProducerInterceptor{passOn{}}
		}, func(c *sarama.Config) any { return c.Producer.Interceptors[0] }, passOn{}},
		"TLS": {func(c *sarama.Config) {
			c.Net.TLS.Enable, c.Net.TLS.Config = true, roots
		}, func(c *sarama.Config) any { return c.Net.TLS.Config }, roots},
		"SASL user": {func(c *sarama.Config) {
			c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "u", secret
		}, func(c *sarama.Config) any { return c.Net.SASL.User }, "u"},
		"SASL password": {func(c *sarama.Config) {
			c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "u", secret
		}, func(c *sarama.Config) any { return c.Net.SASL.Password }, secret},
		"rebalance timeout": {func(c *sarama.Config) {
			c.Consumer.Group.Rebalance.Timeout = 90 * time.Second
		}, func(c *sarama.Config) any {
			return c.Consumer.Group.Rebalance.Timeout
		}, 90 * time.Second},
		"fetch size": {func(c *sarama.Config) {
			c.Consumer.Fetch.Default = 77
		}, func(c *sarama.Config) any { return c.Consumer.Fetch.Default }, int32(77)},
		"version": {func(c *sarama.Config) {
			c.Version = sarama.V3_6_0_0
		}, func(c *sarama.Config) any { return c.Version }, sarama.V3_6_0_0},
	} {
		c := sarama.NewConfig()
		row.set(c)
		if got := row.get(SafeConfig(c)); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
		if err := newAdapter(t, Config{}).CheckConfig(c); err != nil {
			t.Errorf("%s: CheckConfig refuses it: %v", name, err)
		}
	}
}

// passOn is an interceptor.
type passOn struct{}

func (passOn) OnConsume(*sarama.ConsumerMessage) {}
func (passOn) OnSend(*sarama.ProducerMessage)    {}
