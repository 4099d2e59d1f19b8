package outbox

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			require.Nil(t, n)
			require.ErrorAs(t, err, &input)
			require.Equal(t, tt.field, input.Field)
		})
	}
	assert.Error(t, new(Notifier).Run(t.Context()))
}

// However often Notify is called, the notifier sends the first signal at once, then at most one
// for each Every, and one after the last call. It passes few of its failures to
// OnError.
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
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		synctest.Wait()
		assert.Error(t, n.Run(ctx))
		tell := func(times int) {
			for range times {
				o.Notify()
				after(time.Millisecond)
			}
		}
		o.Notify()
		synctest.Wait()
		got := f.ran("notify")
		assert.EqualValues(t, 1, got)
		tell(1000)
		after(time.Second)
		got = f.ran("notify")
		assert.GreaterOrEqual(t, got, 90)
		assert.LessOrEqual(t, got, 102)
		assert.Equal(t, int64(got), n.Sent())
		before := f.ran("notify")
		o.Wake() // is for relays alone
		after(time.Second)
		got = f.ran("notify")
		assert.Equal(t, before, got)
		down.Store(true)
		tell(10_000)
		failed := told.Load()
		assert.GreaterOrEqual(t, failed, int64(5))
		assert.LessOrEqual(t, failed, int64(100))
		cancel()
		assert.NoError(t, <-ended)
	})
}

// Channel returns a name that PostgreSQL accepts, even for the longest name of a table. It is the
// same with a schema and without.
func TestChannel(t *testing.T) {
	for _, table := range []string{"Box", strings.Repeat("t", 63)} {
		var channels []string
		for _, schema := range []string{"", "shop"} {
			o, err := New(Config{Dialect: Postgres, Table: table, Schema: schema})
			require.NoError(t, err)
			channels = append(channels, o.Channel())
		}
		c := channels[0]
		assert.LessOrEqual(t, len(c), 63)
		assert.NotEqual(t, table, c)
		assert.Equal(t, channels[1], c)
		assert.True(t, strings.HasSuffix(c, "_wake"), "channels %s of %s", channels, table)
	}
	c := (*Outbox)(nil).Channel()
	assert.Empty(t, c)
}
