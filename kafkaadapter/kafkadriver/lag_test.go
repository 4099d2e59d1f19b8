package kafkadriver

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.UnixMilli(1_800_000_000_000)

func ago(d time.Duration) Stretch { return Stretch{Found: true, Sent: now.Add(-d)} }

func TestAges(t *testing.T) {
	a0, a1 := TopicPartition{"a", 0}, TopicPartition{"a", 1}
	a2, b0 := TopicPartition{"a", 2}, TopicPartition{"b", 0}
	asked := 0
	for name, c := range map[string]struct {
		unread map[TopicPartition]Span
		sent   map[TopicPartition]map[int64]Stretch
		a, b   time.Duration
		asked  int
	}{
		"all is read": {map[TopicPartition]Span{a0: SpanOf(9, 0, 9), b0: SpanOf(12, 3, 9)},
			nil, 0, 0, 0},
		"empty": {map[TopicPartition]Span{a0: SpanOf(-1, 9, 9)}, nil, 0, 0, 0},
		"the next one": {map[TopicPartition]Span{a0: SpanOf(5, 0, 9)},
			map[TopicPartition]map[int64]Stretch{a0: {5: ago(time.Hour)}}, time.Hour, 0, 1},
		"nothing is committed": {map[TopicPartition]Span{a0: SpanOf(-1, 3, 9)},
			map[TopicPartition]map[int64]Stretch{a0: {3: ago(time.Hour)}}, time.Hour, 0, 1},
		"what was committed is gone": {map[TopicPartition]Span{a0: SpanOf(2, 3, 9)},
			map[TopicPartition]map[int64]Stretch{a0: {3: ago(time.Hour)}}, time.Hour, 0, 1},
		"the oldest of a topic": {
			map[TopicPartition]Span{a0: {5, 9}, a1: {1, 2}, a2: {3, 4}, b0: {0, 1}},
			map[TopicPartition]map[int64]Stretch{a0: {5: ago(time.Minute)}, a1: {1: ago(time.Hour)},
				a2: {3: ago(time.Second)}, b0: {0: ago(time.Second)}}, time.Hour, time.Second, 4,
		},
		"behind a gap": {map[TopicPartition]Span{a0: {5, 90}},
			map[TopicPartition]map[int64]Stretch{a0: {5: {After: 40}, 40: ago(time.Hour)}},
			time.Hour, 0, 2},
		"markers alone": {map[TopicPartition]Span{a0: {5, 7}},
			map[TopicPartition]map[int64]Stretch{a0: {5: {After: 6}, 6: {After: 7}}}, 0, 0, 2},
		"a clock that is ahead": {map[TopicPartition]Span{a0: {5, 9}},
			map[TopicPartition]map[int64]Stretch{a0: {5: ago(-time.Hour)}}, 0, 0, 1},
	} {
		asked = 0
		got, err := Ages(now, []string{"a", "b"}, c.unread,
			func(at TopicPartition, offset int64) (Stretch, error) {
				asked++
				s, ok := c.sent[at][offset]
				require.True(t, ok, "%s: asked for %v from %d on", name, at, offset)
				return s, nil
			})
		require.NoError(t, err, name)
		assert.Equal(t, map[string]time.Duration{"a": c.a, "b": c.b}, got, name)
		assert.Equal(t, c.asked, asked, name)
	}
}

func TestAgesFails(t *testing.T) {
	broken := errors.New("broken")
	for want, c := range map[string]struct {
		Stretch
		err error
	}{
		"a/0 from 5 on cannot be read: broken": {err: broken},
		"a/0 from 5 on has no time": {Stretch: Stretch{Found: true,
			Sent: time.UnixMilli(-1)}},
		"a/0 from 5 to 9 were not sent":         {Stretch: Stretch{After: 5}},
		"first message of a/0 from 5 on has no": {Stretch: Stretch{Found: true}}, // the zero Time
	} {
		got, err := Ages(now, []string{"a"}, map[TopicPartition]Span{{"a", 0}: {5, 9}},
			func(TopicPartition, int64) (Stretch, error) { return c.Stretch, c.err })
		require.ErrorContains(t, err, want)
		assert.Nil(t, got)
		if c.err != nil {
			require.ErrorIs(t, err, c.err)
		}
	}
}
