package sqlbench

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// onServers runs a test on SQLite, and on all shared servers.
func onServers(t *testing.T, test func(t *testing.T, s *server.Database)) {
	for dialect, address := range map[sqladapter.Dialect]func(testing.TB) string{
		sqladapter.SQLite:   func(testing.TB) string { return "" },
		sqladapter.Postgres: servertest.Postgres, sqladapter.MySQL: servertest.MariaDB,
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			s := server.OpenDatabase(t.Context(), &harness.Bench{}, dialect, address(t))
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
			test(t, s)
		})
	}
}

// Every side leaves as many effects and marks as it got messages. A side that did less would look
// fast.
func TestSidesDoWhatTheySay(t *testing.T) {
	const messages = 20
	onServers(t, func(t *testing.T, s *server.Database) {
		g, setup := opened(t, s, 4)
		connections := 2
		if s.Dialect == sqladapter.SQLite {
			connections = 1
		}
		do := map[string]work.Batch{
			effectSide: g.effectAlone, atOnceSide: g.effectAtOnce, markSide: g.marking(g.marks),
			bothSide: g.both(), oneByOneSide: g.oneByOne(),
			handEachSide: g.handEach, doEachSide: g.doEach, fenceSide: g.fenced(2),
		}
		if s.Dialect == sqladapter.Postgres {
			n := g.native(t.Context(), setup, 2)
			do[handBatchSide], do[nativeEffectSide], do[nativeBothSide], do[nativeHandSide] =
				g.handBatch, n.effectAlone, n.both, n.handBatch
		}
		for name, batch := range do {
			before := count(t, g)
			work.InBatches(connections, 8, batch)(t.Context(),
				&harness.Timing{Keys: harness.FreshKeys(messages)})
			effects, marks := messages, messages
			switch name {
			case effectSide, atOnceSide, fenceSide, nativeEffectSide:
				marks = 0
			case markSide:
				effects = 0
			}
			after := count(t, g)
			assert.Equal(t, [2]int{before[0] + effects, before[1] + marks}, after,
				"effects and marks of %s", name)
		}
	})
}

// opened returns the ground of a test, and its setup.
func opened(t *testing.T, s *server.Database, connections int) (*ground, *harness.Setup) {
	t.Helper()
	setup := &harness.Setup{}
	t.Cleanup(func() { assert.NoError(t, setup.Close()) })
	return open(t.Context(), setup, s, connections), setup
}

// count is how many effects and marks there are.
func count(t *testing.T, g *ground) (n [2]int) {
	t.Helper()
	require.NoError(t, g.db.QueryRowContext(t.Context(), fmt.Sprintf(
		`SELECT (SELECT count(*) FROM %s), (SELECT count(*) FROM %s)`, g.effect.table,
		g.name)).Scan(&n[0], &n[1]))
	return n
}

// Nine of ten messages are done already, and have no second effect.
func TestDuplicates(t *testing.T) {
	onServers(t, func(t *testing.T, s *server.Database) {
		g, _ := opened(t, s, 2)
		timing := &harness.Timing{Keys: harness.FreshKeys(100)}
		g.duplicates(200)(t.Context(), timing)
		before := count(t, g)
		g.both()(t.Context(), 0, timing.Keys)
		after := count(t, g)
		assert.Equal(t, []int{200, 10, 10},
			[]int{before[1], after[0] - before[0], after[1] - before[1]})
	})
}

func titled(groups []harness.Group, pattern string) []harness.Group {
	match := regexp.MustCompile(pattern)
	return slices.DeleteFunc(groups, func(g harness.Group) bool {
		return !match.MatchString(g.Title)
	})
}

// Every group runs completely.
func TestGroupsRun(t *testing.T) {
	onServers(t, func(t *testing.T, s *server.Database) {
		e := &env{servers: []*server.Database{s}, fill: 2000, live: 1100, windows: 1}
		groups := titled(e.groups(),
			"bytes|retention|window|^(SQLite, 1|.*, 8) connections?, batch 256")
		want := map[sqladapter.Dialect]int{sqladapter.Postgres: 4}
		assert.Len(t, groups, max(3, want[s.Dialect]))
		rows, err := harness.Runner{
			Scale: harness.Scale{Rounds: 1, Keys: 16, Budget: time.Millisecond}}.Run(
			t.Context(), groups)
		require.NoError(t, err)
		for _, row := range rows {
			assert.Positive(t, row.Value, "%+v", row)
			assert.Equal(t, row.Against != "", row.Ratio > 0, "%+v", row)
		}
	})
}

// A server that the bench has not started keeps its own tables, and gets none of the bench's.
func TestCloseLeavesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *server.Database) {
		setup := &harness.Setup{}
		g := open(t.Context(), setup, s, 1)
		if s.Dialect == sqladapter.Postgres {
			g.inGenerations(t.Context(), g.name+"_gens")
		}
		assert.GreaterOrEqual(t, len(g.tables(t.Context())), 5)
		require.NoError(t, setup.Close())
		g.db = s.Pool(1)
		defer func() { _ = g.db.Close() }()
		assert.Empty(t, g.tables(t.Context()))
	})
}

func TestGoalsAreThoseOfTheIssue(t *testing.T) {
	e := &env{servers: []*server.Database{{Dialect: sqladapter.Postgres},
		{Dialect: sqladapter.MySQL}, {Dialect: sqladapter.SQLite}}}
	goals := make(map[harness.Goal]int)
	for _, s := range e.servers {
		for _, p := range points(s) {
			setup := &harness.Setup{}
			p.compare(setup)
			for _, pair := range setup.Pairs {
				goals[pair.Goal]++
			}
		}
	}
	delete(goals, "")
	want := map[harness.Goal]int{
		// 1, 8, 32 connections, three batches; and pgx
		">= 0.45x (stretch 0.55x)": 10, ">= 0.95x (stretch 1x)": 9, ">= 0.9x (stretch 1x)": 9,
		">= 18x (stretch 22x)": 3, ">= 24x (stretch 27x)": 3, ">= 20x": 1, ">= 25x": 1,
		"<= 1.05x (stretch 1x)": 2,
		// alone and with its effect, on PostgreSQL and MariaDB
		"<= 0.75x (stretch 0.6x)": 4,
	}
	assert.Equal(t, want, goals)
}

func TestQuickLeavesPointsOut(t *testing.T) {
	b := &harness.Bench{}
	Suite.Open(t.Context(), harness.Options{Quick: true, List: true, Postgres: server.Listed,
		MariaDB: server.None}, b)
	groups := slices.DeleteFunc(titled(b.Groups, "^PostgreSQL.*batch"),
		func(g harness.Group) bool { return g.Detail })
	assert.Len(t, groups, 2)
	assert.Contains(t, b.LeftOut, "MariaDB: there is none")
}

// A failed effect is an error of the side, not a fast batch.
func TestFailureOfASide(t *testing.T) {
	s := server.OpenDatabase(t.Context(), &harness.Bench{}, sqladapter.SQLite, "")
	t.Cleanup(func() { _ = s.Close() })
	setup := &harness.Setup{}
	t.Cleanup(func() { _ = setup.Close() }) // a table is missing
	g := open(t.Context(), setup, s, 1)
	_, err := g.db.ExecContext(t.Context(), `DROP TABLE `+g.effect.table)
	require.NoError(t, err)
	for name, do := range map[string]work.Batch{"batch": g.both(), "one": g.doEach,
		"hand": g.handEach, "alone": g.effectAlone, "fence": g.fenced(1)} {
		assert.Error(t, must.Try(func() {
			work.InBatches(1, 4, do)(t.Context(), &harness.Timing{Keys: harness.FreshKeys(8)})
		}), name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, must.Try(func() { g.inTx(ctx, func(*sql.Tx) {}) }))
}
