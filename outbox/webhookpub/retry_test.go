package webhookpub

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	p, err := New(Config{Endpoints: func(context.Context, string) ([]Endpoint, error) {
		return nil, nil
	}})
	require.NoError(t, err)
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                     0,
		"soon":                 0,
		"-1":                   0,
		"0":                    0,
		"1":                    time.Second,
		"3600":                 time.Hour,
		"3601":                 time.Hour,
		"99999999999999999999": 0, // not a number of the header
		"4294967295":           time.Hour,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Second).Format(http.TimeFormat):     0,
		now.Add(1e6 * time.Hour).Format(http.TimeFormat):  time.Hour,
	} {
		p.retryAfter("u", text, now)
		assert.Equal(t, want, max(0, p.rest("u", now)), "%q", text)
		p.retryAfter("u", "0", now.Add(2*time.Hour))
	}
	assert.Empty(t, p.until, "what is over is forgotten")
	p.retryAfter("u", "5", now)
	assert.Negative(t, p.rest("v", now), "of another URL")
}
