package pgxlisten_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
)

func config(t *testing.T) pgxlisten.Config {
	t.Helper()
	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres})
	if err != nil {
		t.Fatal(err)
	}
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
		if _, err := pgxlisten.New(cfg); !errors.As(err, &input) || input.Field != tt.field {
			t.Errorf("%s: %v; want an InputError on %s", name, err, tt.field)
		}
	}
	if err := new(pgxlisten.Listener).Run(t.Context()); err == nil {
		t.Error("a listener that New has not made runs")
	}
}

// Without a server it tries again, ever more rarely, and ends with its context.
func TestNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		var told atomic.Int64
		cfg.OnError = func(error) { told.Add(1) }
		l, err := pgxlisten.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		<-time.After(time.Minute)
		if err := l.Run(ctx); err == nil {
			t.Error("it runs twice")
		}
		if n := told.Load(); n < 10 || n > 100 {
			t.Errorf("tried %d times in a minute", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}
