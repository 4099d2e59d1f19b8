package kafkaconfluent

import (
	"context"
	"strings"
	"testing"
	"time"

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

// Run refuses a setting that makes no sense or would lose messages, and names it, before the member
// joins.
func TestBadConfig(t *testing.T) {
	r := newRig(t, 1)
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
		c, err := New(group, r.config(nil))
		require.NoError(t, err)
		property = strings.TrimSpace(property)
		err = c.Run(t.Context(), r.properties(kafka.ConfigMap{property: value}), []string{orders})
		wantInput(t, err, "kafka.ConfigMap."+property)
	}
	c, err := New(group, r.config(nil))
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

	cfg := r.config(nil)
	cfg.Own = &kafkaadapter.Owning{Partitioner: kafkaadapter.Murmur2,
		Acquire: func(context.Context, kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
			return nil, errBroken
		}}
	cfg.Tuning.Drain = 56*time.Second + time.Millisecond // and 4 s, in a minute
	c, err = New(group, cfg)
	require.NoError(t, err)
	wantInput(t, c.Run(t.Context(), r.properties(nil), []string{orders}),
		"kafka.ConfigMap.max.poll.interval.ms")
	cfg.Own.Partitioner = nil
	_, err = New(group, cfg)
	wantInput(t, err, "kafkaadapter.Config.Own.Partitioner")
	cfg = r.config(nil)
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
	r := newRig(t, 1)
	c, err := New(group, r.config(nil))
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
	r := newRig(t, 1)
	r.produce(0, 0, 5)
	started := make(chan struct{})
	cfg := r.config(nil)
	cfg.Allow.Skip = true
	cfg.Observer.Assigned = func(string, int32, int32) { close(started) }
	leave := r.join(cfg, kafka.ConfigMap{"auto.offset.reset": "latest"})
	<-started
	n := 0
	r.eventually(func() (bool, string) { // the client may look up the end after some of these
		r.produce(0, 100+n, 1)
		n++
		return r.totalEffects() > 0, "nothing arrives"
	})
	r.committed()
	leave()
	assert.Zero(t, r.effects["evt_000000"], "a message from before the start was not skipped")
}
