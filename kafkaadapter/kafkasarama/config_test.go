package kafkasarama

import (
	"context"
	"crypto/tls"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// stubClient is a sarama.Client with only the methods that the tests need.
type stubClient struct {
	sarama.Client
	config *sarama.Config
	closed bool
}

// Config implements sarama.Client.
func (c stubClient) Config() *sarama.Config { return c.config }

// Closed implements sarama.Client.
func (c stubClient) Closed() bool { return c.closed }

// consumerOf makes a Consumer of cfg and the required settings.
func consumerOf(t *testing.T, cfg kafkaadapter.Config) *Consumer {
	t.Helper()
	c, err := New(stubClient{config: SafeConfig(nil)}, groupName, usable(t, cfg))
	require.NoError(t, err)
	return c
}

func usable(t *testing.T, cfg kafkaadapter.Config) kafkaadapter.Config {
	t.Helper()
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	cfg.Deduper, cfg.Logger = d, slog.New(slog.DiscardHandler)
	cfg.Handler = func(context.Context, *kafkaadapter.Message) error { return nil }
	return cfg
}

func TestNewRefusesBadInput(t *testing.T) {
	safe, old := SafeConfig(nil), sarama.NewConfig()
	old.Version = sarama.V0_10_2_0
	for _, c := range []struct {
		field  string // "" for none
		client sarama.Client
		group  string
		change func(*kafkaadapter.Config)
	}{
		{"", stubClient{config: safe}, "g", nil},
		{"group", stubClient{config: safe}, "", nil},
		{"client", nil, "g", nil},
		{"client", stubClient{config: safe, closed: true}, "g", nil},
		{"sarama.Config.Version", stubClient{config: old}, "g", nil},
		{"kafkaadapter.Config.Handler", stubClient{config: safe}, "g",
			func(c *kafkaadapter.Config) { c.Handler = nil }},
	} {
		cfg := usable(t, kafkaadapter.Config{})
		if c.change != nil {
			c.change(&cfg)
		}
		_, err := New(c.client, c.group, cfg)
		if c.field == "" {
			require.NoError(t, err)
			continue
		}
		wantRefusal(t, err, c.field, "")
	}
}

func TestSafeConfigPassesTheCheck(t *testing.T) {
	consumer := consumerOf(t, kafkaadapter.Config{})
	bad := sarama.NewConfig()
	bad.Version = sarama.V0_10_2_0
	bad.Consumer.Offsets.AutoCommit.Enable = true
	for name, c := range map[string]*sarama.Config{"nil": nil, "defaults": sarama.NewConfig(),
		"bad": bad} {
		safe := SafeConfig(c)
		if c != nil {
			assert.Same(t, c, safe, name)
		}
		assert.NoError(t, consumer.CheckConfig(safe), name)
		assert.NoError(t, safe.Validate(), name)
	}
	newer := sarama.NewConfig()
	newer.Version = sarama.V3_6_0_0
	assert.Equal(t, sarama.V3_6_0_0, SafeConfig(newer).Version, "the version was lowered")
}

func TestCheckConfigRefuses(t *testing.T) {
	strict := consumerOf(t, kafkaadapter.Config{})
	lax := consumerOf(t, kafkaadapter.Config{Allow: kafkaadapter.Allow{Skip: true}})
	const skips = true // allowed with Allow.Skip
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
		{"Consumer.Offsets.Initial", "set kafkaadapter.Allow.Skip", skips, func(c *sarama.Config) {
			c.Consumer.Offsets.Initial = 0
		}},
		{"Consumer.Group.ResetInvalidOffsets", "an invalid offset would silently skip", skips,
			func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = true }},
		{"Consumer.Group.Rebalance.Timeout",
			"is 10s, less than kafkaadapter.Tuning.Drain (10s) and 3s", !skips,
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
		wantRefusal(t, strict.CheckConfig(sc), "sarama.Config."+c.field, c.reason)
		assert.Equal(t, c.skip, lax.CheckConfig(sc) == nil, "with Allow.Skip: "+c.field)
	}
	wantRefusal(t, strict.CheckConfig(nil), "sarama.Config", "is nil")
	static := SafeConfig(nil)
	static.Consumer.Group.InstanceId = "pod-1"
	wantRefusal(t, strict.CheckConfig(static), "sarama.Config.Consumer.Group.InstanceId",
		`is "pod-1", and "" in the configuration of the client`)
	just := SafeConfig(nil)
	just.Consumer.Group.Rebalance.Timeout, just.Consumer.MaxWaitTime = 13*time.Second,
		21*time.Second-time.Millisecond
	assert.NoError(t, strict.CheckConfig(just))
}

// wantRefusal wants an InputError about a field, with a part of the reason.
func wantRefusal(t *testing.T, err error, field, reason string) {
	t.Helper()
	var input *dedup.InputError
	require.ErrorAs(t, err, &input, field)
	assert.Equal(t, field, input.Field)
	assert.Contains(t, input.Reason, reason)
}

// SafeConfig does not change the settings of the user that it does not need.
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
		assert.Equal(t, row.want, row.get(SafeConfig(c)), name)
		consumer, err := New(stubClient{config: c}, groupName, usable(t, kafkaadapter.Config{}))
		require.NoError(t, err)
		assert.NoError(t, consumer.CheckConfig(c), name)
	}
}

// passOn is an interceptor.
type passOn struct{}

func (passOn) OnConsume(*sarama.ConsumerMessage) {}
func (passOn) OnSend(*sarama.ProducerMessage)    {}
