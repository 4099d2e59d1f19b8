package kafkadriver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

const cutUUID = "AAAAAAAAAAAAAAAAAAAAAQ"

// cutLog is the log of one partition, and the group's offset in it.
type cutLog struct {
	oldest, end, committed int64
	since                  int64 // the first message of the window

	asked    time.Time
	metadata string
}

// Topics implements TopicSource.
func (l *cutLog) Topics(context.Context, []string) (map[string]TopicState, error) {
	return map[string]TopicState{"orders": {UUID: cutUUID}}, nil
}

// Committed implements TopicSource.
func (l *cutLog) Committed(context.Context, string, int32) (int64, string, error) {
	return l.committed, Stamp(cutUUID), nil
}

// Bounds implements TopicSource.
func (l *cutLog) Bounds(context.Context, string, int32) (oldest, end int64, err error) {
	return l.oldest, l.end, nil
}

// Since implements TopicSource.
func (l *cutLog) Since(_ context.Context, _ string, _ int32, at time.Time) (int64, error) {
	l.asked = at
	return l.since, nil
}

func (l *cutLog) commit(_ context.Context, _ string, _ int32, next int64, metadata string) error {
	l.committed, l.metadata = next, metadata
	return nil
}

func logOf(oldest, end, committed, since int64) cutLog {
	return cutLog{oldest: oldest, end: end, committed: committed, since: since}
}

func TestLogCut(t *testing.T) {
	// log: oldest, end, committed, since
	rows := map[string]struct {
		log       cutLog
		refused   bool // an offset was out of range
		unclaimed bool // there is no Deduper, so no window
		want      int64
	}{
		"whole":              {log: logOf(10, 150, 150, 20), want: 150},
		"behind":             {log: logOf(10, 300, 150, 20), want: 150},
		"cut":                {log: logOf(10, 130, 150, 20), want: 20},
		"cut, nothing since": {log: logOf(10, 130, 150, -1), want: 130},
		"cut, since before":  {log: logOf(10, 130, 150, 5), want: 10},
		"cut, no window":     {log: logOf(10, 130, 150, 20), unclaimed: true, want: 10},
		"cut, grown":         {log: logOf(10, 300, 150, 20), refused: true, want: 20},
		"grown, all later":   {log: logOf(10, 300, 150, 200), refused: true, want: 150},
		"retention":          {log: logOf(200, 300, 150, 220), refused: true, want: 150},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testLogCut(t, &row.log, row.refused, row.unclaimed, row.want)
			})
		})
	}
}

func testLogCut(t *testing.T, log *cutLog, refused, unclaimed bool, want int64) {
	var told []error
	engine, err := engineOf(t, func(cfg *kafkaadapter.Config) {
		cfg.Observer.GroupError = func(err error) { told = append(told, err) }
		if unclaimed {
			cfg.Deduper, cfg.Unclaimed = nil, true
		}
	})
	require.NoError(t, err)
	topics := engine.NewTopics(log)
	if refused {
		topics.OutOfRange("orders", 3)
	}
	ctx, end := context.WithCancelCause(t.Context())
	session := topics.Begin(end)
	defer session.Close()
	before := log.committed
	moved := want != before
	assert.Equal(t, !moved, session.Claimed(ctx, "orders", 3, atStart, log.commit))
	assert.Equal(t, want, log.committed)
	if !moved {
		assert.Empty(t, told)
		assert.NoError(t, context.Cause(ctx))
		return
	}
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], kafkaadapter.ErrLogCut)
	require.ErrorIs(t, context.Cause(ctx), kafkaadapter.ErrLogCut, "the session reads on")
	assert.Equal(t, Stamp(cutUUID), log.metadata)
	if !unclaimed {
		assert.Equal(t, time.Now().Add(-time.Hour), log.asked)
	}
	// The next session begins there.
	again := topics.Begin(end)
	defer again.Close()
	log.end = max(log.end, want)
	assert.True(t, again.Claimed(t.Context(), "orders", 3, want, log.commit))
	assert.Len(t, told, 1)
}

// A driver whose client does not begin such a partition calls Recheck for the refused partitions.
func TestRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := engineOf(t, nil)
		require.NoError(t, err)
		log := &cutLog{oldest: 10, end: 130, committed: 150, since: 20}
		topics := engine.NewTopics(log)
		ctx, end := context.WithCancelCause(t.Context())
		session := topics.Begin(end)
		defer session.Close()
		assigned := map[string][]int32{"orders": {2, 3}}
		session.Recheck(ctx, assigned, log.commit)
		assert.EqualValues(t, 150, log.committed, "nobody was refused")
		topics.OutOfRange("orders", 3)
		session.Recheck(ctx, assigned, log.commit)
		assert.EqualValues(t, 20, log.committed)
		assert.ErrorIs(t, context.Cause(ctx), kafkaadapter.ErrLogCut)
	})
}
