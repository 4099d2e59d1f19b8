package outbox

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestNewNotifier(t *testing.T) {
	good := NotifierConfig{Outbox: newOutbox(t, Postgres), DB: new(sql.DB)}
	for name, tt := range map[string]struct {
		field string
		edit  func(*NotifierConfig)
	}{
		"no outbox":  {"Outbox", func(c *NotifierConfig) { c.Outbox = nil }},
		"of another": {"Outbox", func(c *NotifierConfig) { c.Outbox = newOutbox(t, MySQL) }},
		"no pool":    {"DB", func(c *NotifierConfig) { c.DB = nil }},
		"too often":  {"Every", func(c *NotifierConfig) { c.Every = 1 }},
		"too rarely": {"Every", func(c *NotifierConfig) { c.Every = time.Hour }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.edit(&cfg)
			n, err := NewNotifier(cfg)
			var input *InputError
			if n != nil || !errors.As(err, &input) || input.Field != tt.field {
				t.Fatalf("NewNotifier = %v, %v; want an InputError on %q", n, err, tt.field)
			}
		})
	}
	if err := new(Notifier).Run(t.Context()); err == nil {
		t.Error("a notifier that NewNotifier has not made runs")
	}
}

// However often it is told, it sends the first at once, no more than its pace allows, and what it
// was told last; when it fails, it fails rarely.
func TestNotifierIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(t, Postgres)
		f, db := openFake(t, o)
		var down atomic.Bool
		f.fail = func(string) error {
			if down.Load() {
				return errBroken
			}
			return nil
		}
		var told atomic.Int64
		n, err := NewNotifier(NotifierConfig{
			Outbox: o, DB: db, Every: 10 * time.Millisecond, OnError: func(error) { told.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		synctest.Wait()
		if err := n.Run(ctx); err == nil {
			t.Error("it runs twice")
		}
		tell := func(times int) {
			for range times {
				o.Notify()
				after(time.Millisecond)
			}
		}
		o.Notify()
		synctest.Wait()
		if got := f.ran("notify"); got != 1 {
			t.Errorf("%d at once", got)
		}
		tell(1000)
		after(time.Second)
		if got := f.ran("notify"); got < 90 || got > 102 || n.Sent() != int64(got) {
			t.Errorf("%d in a second, %d sent", got, n.Sent())
		}
		before := f.ran("notify")
		o.Wake() // is for relays alone
		after(time.Second)
		if got := f.ran("notify"); got != before {
			t.Errorf("%d after Wake", got-before)
		}
		down.Store(true)
		tell(10_000)
		if got := told.Load(); got < 5 || got > 100 {
			t.Errorf("failed %d times in 10 s", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// The channel is a name that PostgreSQL takes, also of a table whose own is as long as may be, and
// the same with a schema and without.
func TestChannel(t *testing.T) {
	for _, table := range []string{"Box", strings.Repeat("t", 63)} {
		var channels []string
		for _, schema := range []string{"", "shop"} {
			o, err := New(Config{Dialect: Postgres, Table: table, Schema: schema})
			if err != nil {
				t.Fatal(err)
			}
			channels = append(channels, o.Channel())
		}
		if c := channels[0]; len(c) > 63 || c == table || c != channels[1] ||
			!strings.HasSuffix(c, "_wake") {
			t.Errorf("channels %s of %s", channels, table)
		}
	}
	if c := (*Outbox)(nil).Channel(); c != "" {
		t.Errorf("channel %s of nothing", c)
	}
}
