package sqladapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func newFence(t *testing.T, d Dialect) *Fence {
	t.Helper()
	f, err := NewFence(FenceConfig{Dialect: d, Group: "billing"})
	require.NoError(t, err)
	return f
}

func orders(partition int32) Position {
	return Position{"orders", "pXbM4mQvT1iPzC0yRr0nEg", partition}
}

// TestFenceGoldenSQL pins every statement, and the migrations.
func TestFenceGoldenSQL(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite, MySQL} {
		t.Run(d.String(), func(t *testing.T) {
			f, err := NewFence(FenceConfig{Dialect: d, Group: "billing", Schema: "Shop",
				Table: "fence"})
			require.NoError(t, err)
			parts := []string{f.Migrations().SQL()}
			for _, s := range f.statements.advance("billing", []Span{{orders(0), 1, 2}}) {
				parts = append(parts, s.text)
			}
			got := strings.Join(append(parts, f.statements.lookup, f.statements.forget),
				"\n\n") + "\n"
			file := filepath.Join("testdata", "fence."+d.String()+".golden.sql")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got,
				"statements differ from %s (run with -update to accept):", file)
		})
	}
}

func TestNewFence(t *testing.T) {
	for name, tt := range map[string]struct {
		field string
		edit  func(*FenceConfig)
	}{
		"no dialect":      {"Dialect", func(c *FenceConfig) { c.Dialect = 0 }},
		"unknown dialect": {"Dialect", func(c *FenceConfig) { c.Dialect = 99 }},
		"no group":        {"Group", func(c *FenceConfig) { c.Group = "" }},
		"long group":      {"Group", func(c *FenceConfig) { c.Group = strings.Repeat("g", 256) }},
		"binary group":    {"Group", func(c *FenceConfig) { c.Group = "\xff" }},
		"zero byte":       {"Group", func(c *FenceConfig) { c.Group = "a\x00b" }},
		"quote in table":  {"Table", func(c *FenceConfig) { c.Table = `f"; DROP TABLE x; --` }},
		"backquote":       {"Table", func(c *FenceConfig) { c.Table = "f`" }},
		"quote in schema": {"Schema", func(c *FenceConfig) { c.Schema = `"` }},
		"no such level":   {"Isolation", func(c *FenceConfig) { c.Isolation = 99 }},
		"level in SQLite": {"Isolation", func(c *FenceConfig) {
			c.Dialect, c.Isolation = SQLite, sql.LevelSerializable
		}},
		"dot in schema": {"Schema", func(c *FenceConfig) { c.Schema = "a.b" }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := FenceConfig{Dialect: Postgres, Group: "billing"}
			tt.edit(&cfg)
			f, err := NewFence(cfg)
			var input *dedup.InputError
			assert.Nil(t, f)
			require.ErrorAs(t, err, &input)
			assert.Equal(t, tt.field, input.Field)
		})
	}
}

// TestFenceRefuses: bad input is refused before any statement, and the error names the field.
func TestFenceRefuses(t *testing.T) {
	f := newFence(t, Postgres)
	good := Span{orders(1), 10, 20}
	for name, tt := range map[string]struct {
		field string
		spans []Span
	}{
		"nothing in it": {"to", []Span{{orders(1), 10, 10}}},
		"backwards":     {"to", []Span{good, {orders(2), 10, 9}}},
		"negative":      {"from", []Span{{orders(1), -1, 9}}},
		"partition":     {"Position.Partition", []Span{{orders(-1), 0, 9}}},
		"no topic":      {"Position.Topic", []Span{{Position{"", "id", 1}, 0, 9}}},
		"odd topic":     {"Position.Topic", []Span{{Position{`a","b`, "id", 1}, 0, 9}}},
		"long topic": {"Position.Topic",
			[]Span{{Position{strings.Repeat("t", 250), "id", 1}, 0, 9}}},
		"no topic id":  {"Position.TopicID", []Span{{Position{"orders", "", 1}, 0, 9}}},
		"odd topic id": {"Position.TopicID", []Span{{Position{"orders", "a b", 1}, 0, 9}}},
		"twice":        {"spans", []Span{good, {orders(0), 1, 2}, {orders(1), 20, 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			tx, _ := beginScript(t)
			_, err := f.AdvanceBatchTx(t.Context(), tx, tt.spans)
			var input *dedup.InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, tt.field, input.Field)
		})
	}
	db, _ := openScript(t)
	var noTx *sql.Tx
	for name, call := range map[string]func() error{
		"tx": func() error {
			_, err := f.AdvanceTx(t.Context(), noTx, orders(1), 1, 2)
			return err
		},
		"pool": func() error {
			_, err := f.AdvanceTx(t.Context(), db, orders(1), 1, 2)
			return err
		},
		"Fence": func() error {
			_, err := new(Fence).AdvanceTx(t.Context(), db, orders(1), 1, 2)
			return err
		},
		"q":    func() error { _, _, err := f.Lookup(t.Context(), nil, orders(1)); return err },
		"read": func() error { _, _, err := f.Lookup(t.Context(), db, Position{}); return err },
		"drop": func() error { return f.Forget(t.Context(), db, orders(1)) },
		"which": func() error {
			tx, _ := beginScript(t)
			return f.Forget(t.Context(), tx, Position{})
		},
		"nil":   func() error { return (*Fence)(nil).Migrate(t.Context(), db) },
		"db":    func() error { return f.Migrate(t.Context(), nil) },
		"none":  func() error { _, err := f.Migrations().Version(t.Context(), nil); return err },
		"check": func() error { return f.Migrations().Check(t.Context(), nil) },
		"to 2":  func() error { return f.Migrations().To(t.Context(), db, 2) },
		"to -1": func() error { return f.Migrations().To(t.Context(), db, -1) },
	} {
		var input *dedup.InputError
		assert.ErrorAs(t, call(), &input, name)
	}
}

// played advances with what the database had stored. -1 stands for the beginning, -2 for no row.
func played(t *testing.T, f *Fence, spans []Span, stored ...int64) ([]Advance, *Script) {
	t.Helper()
	order, err := inOrder(spans)
	require.NoError(t, err)
	statements := f.statements.advance(f.group, order)
	tx, s := beginScript(t, Step{Query: statements[0].text,
		Rows: func([]any) (rows [][]driver.Value) {
			for i, before := range stored {
				if before >= -1 {
					rows = append(rows, []driver.Value{order[i].Topic, order[i].TopicID,
						int64(order[i].Partition), before})
				}
			}
			return rows
		}})
	found, err := f.AdvanceBatchTx(t.Context(), tx, spans)
	require.NoError(t, err)
	return found, s
}

func TestAdvance(t *testing.T) {
	const none, done = -1, -2
	for name, tt := range map[string]struct {
		stored int64
		want   Advance
	}{
		"nothing stored":           {none, Advance{Start: 10, New: true}},
		"the next batch":           {10, Advance{Start: 10}},
		"a part is done":           {15, Advance{Start: 15}},
		"all is done":              {done, Advance{Start: 20}},
		"all is done, and is told": {20, Advance{Start: 20}},
		"more than that":           {33, Advance{Start: 20}},
		"a gap":                    {4, Advance{Start: 10, Gap: 6}},
		"a gap from the beginning": {0, Advance{Start: 10, Gap: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			got, s := played(t, newFence(t, Postgres), []Span{{orders(3), 10, 20}}, tt.stored)
			assert.Equal(t, tt.want, got[0])
			want := []any{"billing", `{"orders"}`, `{"pXbM4mQvT1iPzC0yRr0nEg"}`, `{3}`,
				`{20}`}
			require.Len(t, s.Args, 1)
			assert.True(t, equal(s.Args[0], want), "%v", s.Args)
		})
	}
}

func equal(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestAdvanceBatch: the statement has the spans sorted by position. The answers keep their order.
func TestAdvanceBatch(t *testing.T) {
	spans := []Span{{orders(9), 90, 99}, {orders(1), 10, 19}, {Position{"NULL", "x", 5}, 50, 59},
		{orders(4), 40, 49}}
	got, s := played(t, newFence(t, Postgres), spans, 55, -1, 30, 99) // NULL/5, orders/1, 4, 9
	want := []Advance{{Start: 99}, {Start: 10, New: true}, {Start: 55}, {Start: 40, Gap: 10}}
	for i := range want {
		assert.Equal(t, want[i], got[i], "span %d", i)
	}
	args := s.Args[0]
	require.Equal(t, `{"NULL","orders","orders","orders"}`, args[1], "args %v", args)
	require.Equal(t, `{5,1,4,9}`, args[3], "args %v", args)
	assert.Equal(t, `{59,19,49,99}`, args[4], "args %v", args)
	tx, _ := beginScript(t)
	found, err := newFence(t, Postgres).AdvanceBatchTx(t.Context(), tx, nil)
	require.NoError(t, err)
	assert.Empty(t, found, "an empty batch")
}

// TestAdvanceFails: if a statement, its rows or their end fail, no Advance is returned.
func TestAdvanceFails(t *testing.T) {
	f := newFence(t, MySQL)
	both := f.statements.advance("billing", []Span{{orders(1), 10, 20}})
	broken := errors.New("broken")
	for name, steps := range map[string][]Step{
		"insert": {{Query: both[0].text, Err: broken}},
		"read":   {{Query: both[0].text}, {Query: both[1].text, Err: broken}},
		"rows":   {{Query: both[0].text}, {Query: both[1].text, NextErr: broken}},
		"close":  {{Query: both[0].text, CloseErr: broken}},
		"scan": {{Query: both[0].text}, {Query: both[1].text, Rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{"t", "i", "x", "y"}, {"t", "i", 1, 2}}
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			tx, _ := beginScript(t, append([]Step{{Query: setOpen}, {Query: releaseOpen}},
				steps...)...)
			got, err := f.AdvanceTx(t.Context(), tx, orders(1), 10, 20)
			assert.Equal(t, Advance{}, got)
			assert.Error(t, err)
			assert.False(t, name != "scan" && !errors.Is(err, broken), "%v", err)
		})
	}
	tx, _ := beginScript(t, Step{Query: setOpen}, Step{Query: releaseOpen},
		Step{Query: both[0].text, Err: codeError("55P03")})
	_, err := f.AdvanceTx(context.Background(), tx, orders(1), 10, 20)
	assert.ErrorIs(t, err, dedup.ErrInFlight, "a lock timeout")
	assert.True(t, Retryable(err), "a lock timeout")
}

// TestFenceDo: the effect starts at the fence's old place, in the transaction that moves the fence.
func TestFenceDo(t *testing.T) {
	f := newFence(t, Postgres)
	move := f.statements.advance("billing", []Span{{orders(1), 10, 20}})[0].text
	was := func(before int64) Step {
		return Step{Query: move, Rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{"orders", orders(1).TopicID, int64(1), before}}
		}}
	}
	broken, lost := errors.New("broken"), driver.ErrBadConn
	for name, tt := range map[string]struct {
		steps             []Step
		commits, effects  []error
		want              Advance
		err               error
		starts            []int64
		begun, rolledBack int
	}{
		"new": {steps: []Step{was(-1)}, want: Advance{Start: 10, New: true},
			starts: []int64{10}, begun: 1},
		"a part": {steps: []Step{was(17)}, want: Advance{Start: 17}, starts: []int64{17},
			begun: 1},
		"nothing left": {steps: []Step{{Query: move}}, want: Advance{Start: 20}, begun: 1,
			rolledBack: 1},
		"effect fails": {steps: []Step{was(10)}, effects: []error{broken}, err: broken,
			starts: []int64{10}, begun: 1, rolledBack: 1},
		"permanent": {steps: []Step{was(10)}, effects: []error{dedup.Permanent(lost)},
			err: lost, starts: []int64{10}, begun: 1, rolledBack: 1},
		"busy": {steps: []Step{{Query: move, Err: codeError("55P03")}},
			err: dedup.ErrInFlight, begun: 1, rolledBack: 1},
		"deadlock": {steps: []Step{{Query: move, Err: codeError("40P01")}, was(10)},
			want: Advance{Start: 10}, starts: []int64{10}, begun: 2, rolledBack: 1},
		"effect again": {steps: []Step{was(10), was(12)},
			effects: []error{codeError("40001"), nil}, want: Advance{Start: 12},
			starts: []int64{10, 12}, begun: 2, rolledBack: 1},
		"lost commit": {steps: []Step{was(10), {Query: move}}, commits: []error{lost},
			want: Advance{Start: 20}, starts: []int64{10}, begun: 2, rolledBack: 1},
		"refused there": {steps: []Step{was(10)}, commits: []error{broken}, err: broken,
			starts: []int64{10}, begun: 1},
	} {
		t.Run(name, func(t *testing.T) {
			db, s := openScript(t, tt.steps...)
			s.Commits = tt.commits
			db.SetMaxOpenConns(1) // a statement outside of the transaction would wait for it
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var starts []int64
			got, err := f.Do(ctx, db, orders(1), 10, 20,
				func(_ context.Context, _ *sql.Tx, start int64) error {
					starts = append(starts, start)
					return shift(&tt.effects)
				})
			assert.Equal(t, tt.want, got)
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.err == nil, err == nil)
			assert.Equal(t, tt.starts, starts)
			assert.Equal(t, tt.begun, s.Begun)
			assert.Equal(t, tt.rolledBack, s.RolledBack)
		})
	}
	var input *dedup.InputError
	db, _ := openScript(t)
	for name, call := range map[string]func() (Advance, error){
		"db": func() (Advance, error) {
			return f.Do(t.Context(), nil, orders(1), 1, 2, noEffects)
		},
		"ctx":    func() (Advance, error) { return f.Do(nil, db, orders(1), 1, 2, noEffects) }, //nolint:staticcheck // nil on purpose
		"effect": func() (Advance, error) { return f.Do(t.Context(), db, orders(1), 1, 2, nil) },
		"to": func() (Advance, error) {
			return f.Do(t.Context(), db, orders(1), 2, 2, noEffects)
		},
		"Fence": func() (Advance, error) {
			return new(Fence).Do(t.Context(), db, orders(1), 1, 2, noEffects)
		},
	} {
		_, err := call()
		require.ErrorAs(t, err, &input)
		assert.Equal(t, name, input.Field)
	}
}

func noEffects(context.Context, *sql.Tx, int64) error { return nil }
