package pgxlisten_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/outbox/pgxlisten"
)

func TestNewWaker(t *testing.T) {
	connect := func(context.Context) (*pgx.Conn, error) { return nil, errors.New("no server") }
	for name, row := range map[string]struct {
		field string
		edit  func(*pgxlisten.WakerConfig)
	}{
		"complete":      {"", func(*pgxlisten.WakerConfig) {}},
		"no database":   {"DB", func(c *pgxlisten.WakerConfig) { c.DB = nil }},
		"long channel":  {"Channel", func(c *pgxlisten.WakerConfig) { c.Channel = strings.Repeat("c", 64) }},
		"no connection": {"Connect", func(c *pgxlisten.WakerConfig) { c.Connect = nil }},
		"silence":       {"Silence", func(c *pgxlisten.WakerConfig) { c.Silence = 2 * time.Hour }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := pgxlisten.WakerConfig{DB: new(sql.DB), Connect: connect}
			row.edit(&cfg)
			_, err := pgxlisten.NewWaker(cfg)
			if row.field == "" {
				require.NoError(t, err)
				return
			}
			var input *driver.InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, row.field, input.Field)
		})
	}
	assert.Error(t, new(pgxlisten.Waker).Run(t.Context()), "a waker that NewWaker has not made runs")
}
