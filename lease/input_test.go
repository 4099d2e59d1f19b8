package lease_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/lease"
)

// wantInput insists on an InputError that names the field and does not contain the key.
func wantInput(t *testing.T, err error, field string) {
	t.Helper()
	var input *lease.InputError
	require.ErrorAs(t, err, &input, "want an InputError")
	require.Equal(t, field, input.Field)
	assert.NotContains(t, err.Error(), "secret", "the error tells the key")
}

func TestNewRefuses(t *testing.T) {
	_, good := redistest.Mini(t)
	for name, c := range map[string]struct {
		client redis.UniversalClient
		opts   lease.Options
		field  string
	}{
		"nil client":    {nil, lease.Options{}, "client"},
		"typed nil":     {(*redis.Client)(nil), lease.Options{}, "client"},
		"nil cluster":   {(*redis.ClusterClient)(nil), lease.Options{}, "client"},
		"ring":          {redis.NewRing(&redis.RingOptions{}), lease.Options{}, "client"},
		"braces":        {good, lease.Options{Prefix: "a{b}"}, "Options.Prefix"},
		"space":         {good, lease.Options{Prefix: "a b"}, "Options.Prefix"},
		"long prefix":   {good, lease.Options{Prefix: strings.Repeat("x", 65)}, "Options.Prefix"},
		"negative hold": {good, lease.Options{Hold: -1}, "Options.Hold"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lease.New(c.client, c.opts)
			wantInput(t, err, c.field)
		})
	}
}

func TestAcquireRefuses(t *testing.T) {
	mini, client := redistest.Mini(t)
	c := open(t, client, lease.Options{})
	for name, in := range map[string]struct {
		key   string
		ttl   time.Duration
		field string
	}{
		"empty key":     {"", ttl, "key"},
		"long key":      {strings.Repeat("secret", 50), ttl, "key"},
		"newline":       {"secret\nkey", ttl, "key"},
		"not UTF-8":     {"secret\xff", ttl, "key"},
		"zero ttl":      {"secret", 0, "ttl"},
		"negative ttl":  {"secret", -time.Second, "ttl"},
		"too short ttl": {"secret", time.Millisecond, "ttl"},
		"too long ttl":  {"secret", 1 << 62, "ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Acquire(t.Context(), in.key, in.ttl)
			wantInput(t, err, in.field)
		})
	}
	l := acquire(t, c, "job", ttl)
	var none context.Context
	_, err := c.Acquire(none, "secret", ttl)
	wantInput(t, err, "ctx")
	wantInput(t, l.Renew(none), "ctx")
	wantInput(t, l.Release(none), "ctx")
	run, stop := l.KeepAlive(none)
	wantInput(t, context.Cause(run), "ctx")
	stop()
	assert.Len(t, mini.Keys(), 1, "bad input")
}

// TestForeignValue: a foreign value under a lease's key is neither taken for a lease nor
// overwritten.
func TestForeignValue(t *testing.T) {
	mini, client := redistest.Mini(t)
	c := open(t, client, lease.Options{Prefix: "p"})
	acquire(t, c, "job", ttl)
	key := mini.Keys()[0]
	assert.True(t, strings.HasPrefix(key, "p:{"), "key %q", key)
	assert.NotContains(t, key, "job", "key %q", key)
	require.NoError(t, mini.Set(key, "1"))
	_, err := c.Acquire(t.Context(), "job", ttl)
	assert.Error(t, err)
	assert.NotErrorIs(t, err, lease.ErrHeld)
	v, err := mini.Get(key)
	assert.Equal(t, "1", v)
	assert.NoError(t, err)
}
