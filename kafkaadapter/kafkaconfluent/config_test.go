package kafkaconfluent

import (
	"context"
	"strings"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A setting that cannot be meant, or would lose messages, is refused by its name before the member
// joins.
func TestBadConfig(t *testing.T) {
	r := newRig(t, cooperative, 1)
	for property, value := range map[string]kafka.ConfigValue{
		"bootstrap.servers":        "",
		"group.id":                 "another",
		"default.topic.config":     kafka.ConfigMap{"auto.offset.reset": "latest"},
		"enable.auto.commit":       true,
		"enable.auto.offset.store": "T",
		"auto.offset.reset":        "latest",
		"isolation.level":          "read_uncommitted",
		"go.events.channel.enable": true,
		"max.poll.interval.ms":     "soon",
		"max.poll.interval.ms ":    "3999",
	} {
		c, err := New(group, r.config(r.store, nil))
		require.NoError(t, err)
		property = strings.TrimSpace(property)
		err = c.Run(t.Context(), r.properties(kafka.ConfigMap{property: value}), []string{orders})
		wantInput(t, err, "kafka.ConfigMap."+property)
	}
	c, err := New(group, r.config(r.store, nil))
	require.NoError(t, err)
	for _, topics := range [][]string{nil, {""}, {orders, "^pay.*"}} {
		wantInput(t, c.Run(t.Context(), r.properties(nil), topics), "topics")
	}
	wantInput(t, c.Run(nil, r.properties(nil), []string{orders}), "Context") //nolint:staticcheck // on purpose
	require.ErrorContains(t, c.Run(t.Context(), r.properties(kafka.ConfigMap{"no.such": 1}),
		[]string{orders}), "no.such", "librdkafka's own check")
	if info := r.cluster.GroupInfo(group); info != nil {
		assert.Empty(t, info.Members, "the group has heard of a member")
	}

	cfg := r.config(r.store, nil)
	_, err = New("", cfg)
	wantInput(t, err, "group")
	cfg.Allow.TakeOver = true
	_, err = New(group, cfg)
	wantInput(t, err, "kafkaadapter.Config.Allow.TakeOver")
	cfg.Handler = nil
	_, err = New(group, cfg)
	wantInput(t, err, "kafkaadapter.Config.Handler")
}

// The caller's configuration is not changed.
func TestConfigIsCompleted(t *testing.T) {
	r := newRig(t, cooperative, 1)
	c, err := New(group, r.config(r.store, nil))
	require.NoError(t, err)
	given := kafka.ConfigMap{"bootstrap.servers": "b", "auto.offset.reset": "Earliest",
		"enable.auto.commit": "false"}
	all, err := c.complete(given)
	require.NoError(t, err)
	assert.Len(t, given, 3)
	assert.Equal(t, kafka.ConfigMap{"bootstrap.servers": "b", "group.id": group,
		"auto.offset.reset": "Earliest", "enable.auto.commit": "false",
		"enable.auto.offset.store": false, "isolation.level": "read_committed",
		"fetch.wait.max.ms": 100}, all)
	assert.Equal(t, kafka.OffsetBeginning, startOf(all))
	assert.Equal(t, kafka.OffsetEnd, startOf(kafka.ConfigMap{"auto.offset.reset": "end"}))
}

// Settings that skip messages are allowed with Allow.Skip.
func TestAllowSkip(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.early = true
	r.produce(0, 0, 5)
	started := make(chan struct{})
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Allow.Skip = true
		c.Observer.Assigned = func(string, int32, int32) { close(started) }
	}, kafka.ConfigMap{"auto.offset.reset": "latest"})
	<-started
	n := 0
	r.eventually(func() (bool, string) { // the end may be asked for after some of them
		r.produce(0, 100+n, 1)
		n++
		return r.totalEffects() > 0, "nothing arrives"
	})
	r.committed()
	m.leave()
	assert.Zero(t, r.effects["evt_000000"], "a message from before the start was not skipped")
}

// One Run at a time, and another one after it.
func TestRunsOnce(t *testing.T) {
	r := newRig(t, cooperative, 1)
	running := make(chan struct{}, 2)
	cfg := r.config(r.store, func(context.Context, *kafkaadapter.Message) error {
		running <- struct{}{}
		return nil
	})
	c, err := New(group, cfg)
	require.NoError(t, err)
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx, r.properties(nil), []string{orders}) }()
		r.produce(0, i, 1)
		<-running
		require.ErrorIs(t, c.Run(ctx, r.properties(nil), []string{orders}),
			kafkaadapter.ErrRunning, "a second Run")
		cancel()
		require.NoError(t, <-done, "Run")
	}
	r.committed()
	r.once(2)
}

// A committed offset that the log does not have is an error until somebody decides, and skips
// nothing.
func TestOffsetOutOfRange(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 10)
	m := r.join(nil, nil, nil)
	r.committed()
	m.leave()
	r.produce(0, 10, 10)
	require.NoError(t, r.cluster.DeleteRecords(orders, 0, 15))
	m = r.join(nil, func(c *kafkaadapter.Config) {
		c.Observer.GroupError = func(error) { r.note("error") }
	}, nil)
	r.eventually(func() (bool, string) { return r.noted("error") >= 2, "no error is told" })
	m.leave()
	r.once(10)
}
