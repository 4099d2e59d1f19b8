package kafkadriver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A series of errors has one line at once, and each further one after twice the time. The lines say
// how many errors they stand for.
func TestSeriesHasFewerAndFewerLines(t *testing.T) {
	var s series
	began := time.Unix(1e9, 0)
	var lines []time.Duration
	told := 0
	for at := time.Duration(0); at < time.Minute; at += 10 * time.Millisecond {
		if more, ok := s.due("unknown topic", began.Add(at)); ok {
			lines = append(lines, at)
			told += more + 1
		}
	}
	assert.Equal(t, []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second,
		15 * time.Second, 31 * time.Second}, lines)
	assert.Equal(t, 3101, told)

	_, ok := s.due("another error", began.Add(time.Minute))
	assert.True(t, ok, "another error has a series of its own")
	_, ok = s.due("unknown topic", began.Add(3*time.Minute))
	assert.True(t, ok, "what comes again later begins anew")
	_, ok = s.due("unknown topic", began.Add(3*time.Minute+time.Second))
	assert.True(t, ok, "with the first wait")
}
