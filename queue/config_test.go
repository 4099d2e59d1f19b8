package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

func TestNewNamesTheBadField(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "queue", Window: time.Hour,
		LeaseTTL: time.Second})
	require.NoError(t, err)
	for field, change := range map[string]func(*queue.Config){
		"Deduper":          func(c *queue.Config) { c.Deduper = nil },
		"Unclaimed":        func(c *queue.Config) { c.Unclaimed = true },
		"Handler":          func(c *queue.Config) { c.Handler = nil },
		"Attempts.Max":     func(c *queue.Config) { c.Attempts.Max = 1 },
		"Attempts.Max ":    func(c *queue.Config) { c.Attempts.Max = -1 },
		"Attempts.Timeout": func(c *queue.Config) { c.Attempts.Timeout = -1 },
		"Attempts": func(c *queue.Config) {
			c.Attempts.RetryBase, c.Attempts.RetryMax = 2*time.Second, time.Second
		},
		"Workers": func(c *queue.Config) { c.Workers = -1 },
		"Buffer":  func(c *queue.Config) { c.Buffer = -1 },
		"Drain":   func(c *queue.Config) { c.Drain = -1 },
	} {
		cfg := queue.Config{Deduper: d, Handler: returns(nil)}
		change(&cfg)
		_, err := queue.New(cfg)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "queue.Config."+strings.TrimSpace(field), input.Field)
	}
}
