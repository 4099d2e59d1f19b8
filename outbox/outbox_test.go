package outbox

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGoldenSQL pins every statement: a change of one is a change of what runs in other
// people's databases, and should be seen in review.
func TestGoldenSQL(t *testing.T) {
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			o, err := New(Config{Dialect: d, Schema: "Shop", Table: "box"})
			require.NoError(t, err)
			insert, _ := o.insertion(&o.dialect.insert, []Message{{Topic: "t"}, {Topic: "t"}})
			schedule, _ := o.insertion(&o.dialect.schedule, []Message{{Topic: "t"}})
			parts := []string{o.Schema(), insert, schedule}
			statements := reflect.ValueOf(o.dialect.statements)
			for i := range statements.NumField() {
				name, text := statements.Type().Field(i).Name, statements.Field(i).String()
				lacks := name == "unlock" && d != SQLite || name == "writers" && d == MySQL ||
					name == "lagBehind" && d != Postgres || name == "holder" && d == SQLite ||
					name == "holderBytes" && d != MySQL
				assert.False(t, text == "" && !lacks, "there is no statement %s", name)
				parts = append(parts, text)
			}
			got := strings.Join(parts, "\n\n") + "\n"
			file := filepath.Join("testdata", d.String()+".golden.sql")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

func TestNew(t *testing.T) {
	tests := map[string]struct {
		field string
		cfg   Config
	}{
		"no dialect":        {"Dialect", Config{}},
		"unknown dialect":   {"Dialect", Config{Dialect: 9}},
		"hostile table":     {"Table", Config{Dialect: Postgres, Table: `b"; DROP TABLE x; --`}},
		"long table":        {"Table", Config{Dialect: MySQL, Table: strings.Repeat("t", 64)}},
		"table of versions": {"Table", Config{Dialect: MySQL, Table: "onceward_migrations"}},
		"SQLite's own":      {"Table", Config{Dialect: SQLite, Table: "SQLite_box"}},
		"hostile schema":    {"Schema", Config{Dialect: SQLite, Schema: "a.b"}},
		"long header": {"IDHeader",
			Config{Dialect: Postgres, IDHeader: strings.Repeat("h", 256)}},
		"odd header":       {"IDHeader", Config{Dialect: Postgres, IDHeader: "\xff"}},
		"negative payload": {"MaxPayload", Config{Dialect: Postgres, MaxPayload: -1}},
		"large payload": {"MaxPayload",
			Config{Dialect: Postgres, MaxPayload: maxMaxPayload + 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := New(tt.cfg)
			var input *InputError
			require.Nil(t, o)
			require.ErrorAs(t, err, &input)
			require.Equal(t, tt.field, input.Field)
		})
	}
	_, err := New(Config{Dialect: MySQL, Schema: "_s", Table: strings.Repeat("T", 63),
		MaxPayload: maxMaxPayload})
	assert.NoError(t, err)
}

// acknowledging is a publisher that has no trouble.
type acknowledging struct{}

func (acknowledging) Publish(context.Context, []Message) []error { return nil }

func TestNewRelay(t *testing.T) {
	good := RelayConfig{
		Outbox: newOutbox(t, SQLite), DB: new(sql.DB), Publisher: acknowledging{},
		OnPark: func(context.Context, Parked) {},
	}
	tests := map[string]struct {
		field string
		edit  func(*RelayConfig)
	}{
		"no outbox":    {"Outbox", func(c *RelayConfig) { c.Outbox = nil }},
		"no pool":      {"DB", func(c *RelayConfig) { c.DB = nil }},
		"no publisher": {"Publisher", func(c *RelayConfig) { c.Publisher = nil }},
		"nil publisher": {"Publisher", func(c *RelayConfig) {
			c.Publisher = (*acknowledging)(nil)
		}},
		"nobody to tell":  {"OnPark", func(c *RelayConfig) { c.OnPark = nil }},
		"batch":           {"BatchSize", func(c *RelayConfig) { c.BatchSize = 10_001 }},
		"negative batch":  {"BatchSize", func(c *RelayConfig) { c.BatchSize = -1 }},
		"bytes":           {"BatchBytes", func(c *RelayConfig) { c.BatchBytes = -1 }},
		"two on SQLite":   {"Workers", func(c *RelayConfig) { c.Workers = 2 }},
		"attempts":        {"MaxAttempts", func(c *RelayConfig) { c.MaxAttempts = -1 }},
		"publish timeout": {"PublishTimeout", func(c *RelayConfig) { c.PublishTimeout = 1 }},
		"publish for ever": {"PublishTimeout", func(c *RelayConfig) {
			c.PublishTimeout = math.MaxInt64
		}},
		"stop for ever":  {"StopTimeout", func(c *RelayConfig) { c.StopTimeout = math.MaxInt64 }},
		"retry for ever": {"RetryMax", func(c *RelayConfig) { c.RetryMax = math.MaxInt64 }},
		"stop timeout":   {"StopTimeout", func(c *RelayConfig) { c.StopTimeout = -time.Second }},
		"poll":           {"PollMin", func(c *RelayConfig) { c.PollMin = 1 }},
		"poll upside down": {"PollMax", func(c *RelayConfig) {
			c.PollMin, c.PollMax = time.Minute, time.Second
		}},
		"retry": {"RetryMin", func(c *RelayConfig) { c.RetryMin = 1 }},
		"retry upside": {"RetryMax", func(c *RelayConfig) {
			c.RetryMin, c.RetryMax = time.Minute, time.Second
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.edit(&cfg)
			r, err := NewRelay(cfg)
			var input *InputError
			require.Nil(t, r)
			require.ErrorAs(t, err, &input)
			require.Equal(t, tt.field, input.Field)
		})
	}
	_, err := NewRelay(good)
	assert.NoError(t, err)
	assert.Error(t, new(Relay).Run(t.Context()))
}

// The numbers that docs/reference/outbox-rows.md gives to writers in other languages.
func TestDocumentedRows(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/outbox-rows.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), fmt.Sprintf(
		"The key `account-7` is in shard %d, `a` in %d, and an id `1` without a key in %d.",
		shardOf(&Message{Key: []byte("account-7")}, shards),
		shardOf(&Message{Key: []byte("a")}, shards), shardOf(&Message{ID: "1"}, shards)))
	assert.Contains(t, string(text), fmt.Sprintf("`trace: 7` is `% x`",
		encodeHeaders([]Header{{Key: "trace", Value: []byte("7")}})))
}
