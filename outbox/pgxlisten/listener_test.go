package pgxlisten_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
)

func config(t *testing.T) pgxlisten.Config {
	t.Helper()
	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres})
	require.NoError(t, err)
	return pgxlisten.Config{
		Outbox:  box,
		Connect: func(context.Context) (*pgx.Conn, error) { return nil, errors.New("no server") },
	}
}

func TestNew(t *testing.T) {
	for name, tt := range map[string]struct {
		field string
		edit  func(*pgxlisten.Config)
	}{
		"no outbox":       {"Outbox", func(c *pgxlisten.Config) { c.Outbox = nil }},
		"not made by New": {"Outbox", func(c *pgxlisten.Config) { c.Outbox = new(outbox.Outbox) }},
		"no connection":   {"Connect", func(c *pgxlisten.Config) { c.Connect = nil }},
		"silence":         {"Silence", func(c *pgxlisten.Config) { c.Silence = -1 }},
		"long silence":    {"Silence", func(c *pgxlisten.Config) { c.Silence = 2 * time.Hour }},
	} {
		cfg := config(t)
		tt.edit(&cfg)
		var input *outbox.InputError
		_, err := pgxlisten.New(cfg)
		require.ErrorAs(t, err, &input, name)
		assert.Equal(t, tt.field, input.Field, name)
	}
	assert.Error(t, new(pgxlisten.Listener).Run(t.Context()))
}

// Without a server it tries again, ever more rarely, and ends with its context.
func TestNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		var told atomic.Int64
		cfg.OnError = func(error) { told.Add(1) }
		l, err := pgxlisten.New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		<-time.After(time.Minute)
		assert.Error(t, l.Run(ctx))
		n := told.Load()
		assert.GreaterOrEqual(t, n, int64(10))
		assert.LessOrEqual(t, n, int64(100))
		cancel()
		assert.NoError(t, <-ended)
	})
}
