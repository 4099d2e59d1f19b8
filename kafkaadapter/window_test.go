package kafkaadapter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCheckWindowRetention(t *testing.T) {
	const h, ms = time.Hour, time.Millisecond
	for name, c := range map[string]struct{ keeps, want time.Duration }{ // 0: it is not longer
		"for no time":        {0, 0},
		"shorter":            {h - ms, 0},
		"as long":            {h, 0},
		"a millisecond more": {h + ms, h + ms},
		"without limit":      {-1, -1},
	} {
		got := CheckWindow(h, map[string]time.Duration{"a": c.keeps, "b": 1}, nil)
		if c.want == 0 {
			assert.Empty(t, got, name)
			continue
		}
		assert.Equal(t, []*WindowError{{Topic: "a", Window: h, Retention: c.want}}, got, name)
	}
}

// There is one error for each topic that exceeds the window, in order.
func TestCheckWindowLag(t *testing.T) {
	const h, ms = time.Hour, time.Millisecond
	lags := map[string]time.Duration{"a": h - ms, "b": h, "c": h + ms, "d": 4 * h}
	assert.Equal(t, []*WindowError{{Topic: "c", Window: h, Lag: h + ms},
		{Topic: "d", Window: h, Lag: 4 * h}}, CheckWindow(h, nil, lags))
	keeps := map[string]time.Duration{"d": 2 * h, "a": -1}
	assert.Equal(t, []*WindowError{{Topic: "a", Window: h, Retention: -1},
		{Topic: "c", Window: h, Lag: h + ms},
		{Topic: "d", Window: h, Retention: 2 * h, Lag: 4 * h}}, CheckWindow(h, keeps, lags))
	assert.Empty(t, CheckWindow(h, nil, nil))
}

func TestWindowErrorSaysWhy(t *testing.T) {
	for want, e := range map[string]*WindowError{
		`kept for 1h0m0s, and topic "a" keeps messages for 2h0m0s`: {Topic: "a",
			Window: time.Hour, Retention: 2 * time.Hour},
		`"a" keeps messages without limit, and has a message of 3h0m0s ago that is not read`: {
			Topic: "a", Window: time.Hour, Retention: -1, Lag: 3 * time.Hour},
		`kept for 1h0m0s, and topic "a" has a message of 3h0m0s ago that is not read`: {
			Topic: "a", Window: time.Hour, Lag: 3 * time.Hour},
	} {
		assert.ErrorContains(t, e, want)
	}
}
