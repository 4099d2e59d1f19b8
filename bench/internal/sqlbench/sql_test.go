package sqlbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// onServers runs a test on SQLite, and on the shared servers that there are.
func onServers(t *testing.T, test func(t *testing.T, s *server.Database)) {
	for _, c := range []struct {
		dialect sqladapter.Dialect
		address func(testing.TB) string
	}{
		{sqladapter.SQLite, func(testing.TB) string {
			return ""
		}}, {sqladapter.Postgres, servertest.Postgres}, {sqladapter.MySQL, servertest.MariaDB},
	} {
		t.Run(c.dialect.String(), func(t *testing.T) {
			s, err := server.OpenDatabase(t.Context(), c.dialect, c.address(t), 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, s)
		})
	}
}

// small is a workload that a test has time for.
func small(s *server.Database) point {
	p := point{server: s, connections: 2, batch: 8}
	if s.Dialect == sqladapter.SQLite {
		p.connections = 1
	}
	return p
}

// Every side leaves as many effects and marks as messages it was given, and no more: a side
// that did less would look fast.
func TestSidesDoWhatTheySay(t *testing.T) {
	const messages = 20
	onServers(t, func(t *testing.T, s *server.Database) {
		g, setup := opened(t, s, 4)
		do := map[string]work.Batch{
			effectSide: g.effectAlone, atOnceSide: g.effectAtOnce, markSide: g.markAlone,
			bothSide: g.both, oneByOneSide: g.oneByOne,
			handEachSide: g.handEach, doEachSide: g.doEach, fenceSide: g.fenced(2),
		}
		if s.Dialect == sqladapter.Postgres {
			n, err := g.native(t.Context(), setup, 2)
			if err != nil {
				t.Fatal(err)
			}
			do[handBatchSide], do[nativeEffectSide], do[nativeBothSide], do[nativeHandSide] =
				g.handBatch, n.effectAlone, n.both, n.handBatch
		}
		for name, batch := range do {
			t.Run(name, func(t *testing.T) {
				before := count(t, g)
				run := work.InBatches(small(s).connections, 8, batch)
				if err := run(t.Context(),
					&harness.Timing{Keys: harness.FreshKeys(messages)}); err != nil {
					t.Fatal(err)
				}
				effects, marks := messages, messages
				switch name {
				case effectSide, atOnceSide, fenceSide, nativeEffectSide:
					marks = 0
				case markSide:
					effects = 0
				}
				if after := count(t, g); after[0]-before[0] != effects ||
					after[1]-before[1] != marks {
					t.Errorf("%d effects and %d marks of %d messages", after[0]-before[0],
						after[1]-before[1], messages)
				}
			})
		}
	})
}

// opened is the ground of a test.
func opened(t *testing.T, s *server.Database, connections int) (*ground, *harness.Setup) {
	t.Helper()
	setup := &harness.Setup{}
	t.Cleanup(func() {
		if err := setup.Close(); err != nil {
			t.Error(err)
		}
	})
	g, err := open(t.Context(), setup, s, connections)
	if err != nil {
		t.Fatal(err)
	}
	return g, setup
}

// count is how many effects and marks there are.
func count(t *testing.T, g *ground) [2]int {
	t.Helper()
	var n [2]int
	ask := fmt.Sprintf(`SELECT (SELECT count(*) FROM %s), (SELECT count(*) FROM %s)`,
		g.effect.table, g.name)
	if err := g.db.QueryRowContext(t.Context(), ask).Scan(&n[0], &n[1]); err != nil {
		t.Fatal(err)
	}
	return n
}

// Nine of ten are done already, and have no effect again.
func TestDuplicates(t *testing.T) {
	onServers(t, func(t *testing.T, s *server.Database) {
		g, _ := opened(t, s, 2)
		timing := &harness.Timing{Keys: harness.FreshKeys(100)}
		if err := g.duplicates(200)(t.Context(), timing); err != nil {
			t.Fatal(err)
		}
		before := count(t, g)
		if err := g.both(t.Context(), 0, timing.Keys); err != nil {
			t.Fatal(err)
		}
		if after := count(t, g); before[1] != 200 || after[0]-before[0] != 10 ||
			after[1]-before[1] != 10 {
			t.Errorf("counts of effects and marks %v, then %v", before, after)
		}
	})
}

// The groups run from their first connection to their last table.
func TestGroupsRun(t *testing.T) {
	onServers(t, func(t *testing.T, s *server.Database) {
		e := &env{servers: []*server.Database{s}, fill: 2000, live: 1100, windows: 1}
		match := regexp.MustCompile(
			"bytes|retention|window|^(SQLite, 1|.*, 8) connections?, batch 256")
		groups := slices.DeleteFunc(e.groups(), func(g harness.Group) bool {
			return !match.MatchString(g.Title)
		})
		want := 3
		if s.Dialect == sqladapter.Postgres {
			want = 4
		}
		if len(groups) != want {
			t.Fatalf("%d groups, want %d", len(groups), want)
		}
		r := harness.Runner{Rounds: 1, MaxKeys: 16, Budget: time.Millisecond}
		rows, err := r.Run(t.Context(), groups)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Value <= 0 || row.Against != "" && row.Ratio <= 0 {
				t.Errorf("nothing was measured: %+v", row)
			}
		}
	})
}

// Servers of others keep their tables and get none of ours.
func TestCloseLeavesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *server.Database) {
		setup := &harness.Setup{}
		g, err := open(t.Context(), setup, s, 1)
		if err != nil {
			t.Fatal(err)
		}
		if s.Dialect == sqladapter.Postgres {
			if _, err := g.inGenerations(t.Context(), g.name+"_gens"); err != nil {
				t.Fatal(err)
			}
		}
		made, err := g.tables(t.Context())
		if err := errors.Join(err, setup.Close()); err != nil {
			t.Fatal(err)
		}
		if g.db, err = s.Pool(1); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.db.Close() }()
		if left, err := g.tables(t.Context()); err != nil || len(left) > 0 || len(made) < 5 {
			t.Errorf("made %q, left behind %q, %v", made, left, err)
		}
	})
}

func TestGoalsAreThoseOfTheIssue(t *testing.T) {
	e := &env{servers: []*server.Database{{Dialect: sqladapter.Postgres},
		{Dialect: sqladapter.MySQL}, {Dialect: sqladapter.SQLite}}}
	goals := make(map[string]int)
	for _, s := range e.servers {
		for _, p := range points(s) {
			for _, pair := range p.pairs() {
				goals[pair.Goal.String()]++
			}
		}
	}
	delete(goals, "")
	want := map[string]int{
		// 1, 8, 32 connections, three batches; and pgx
		">= 0.45x (stretch 0.55x)": 10, ">= 0.95x (stretch 1x)": 9, ">= 0.9x (stretch 1x)": 9,
		">= 18x (stretch 22x)": 3, ">= 24x (stretch 27x)": 3, ">= 20x": 1, ">= 25x": 1,
		"<= 1.05x (stretch 1x)": 2,
	}
	for text, n := range want {
		if goals[text] != n {
			t.Errorf("goal %q stands %d times, want %d", text, goals[text], n)
		}
	}
	if len(goals) != len(want) {
		t.Errorf("goals %v, want %v", goals, want)
	}
}

func TestQuickLeavesPointsOut(t *testing.T) {
	b, err := Suite.Open(t.Context(),
		harness.Options{Quick: true, List: true, Postgres: server.Listed, MariaDB: server.None})
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile("^PostgreSQL.*batch")
	groups := slices.DeleteFunc(b.Groups, func(g harness.Group) bool {
		return g.Detail || !match.MatchString(g.Title)
	})
	if len(groups) != 2 || !slices.Contains(b.LeftOut, "MariaDB: there is none") {
		t.Errorf("%d groups, left out %q", len(groups), b.LeftOut)
	}
}

// A failed effect is an error of the side, not a fast batch.
func TestFailureOfASide(t *testing.T) {
	s, err := server.OpenDatabase(t.Context(), sqladapter.SQLite, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	setup := &harness.Setup{}
	t.Cleanup(func() { _ = setup.Close() }) // a table is missing
	g, err := open(t.Context(), setup, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.ExecContext(t.Context(), `DROP TABLE `+g.effect.table); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]work.Batch{"batch": g.both, "one": g.doEach,
		"hand": g.handEach, "alone": g.effectAlone, "fence": g.fenced(1)} {
		if err := work.InBatches(1, 4, do)(t.Context(),
			&harness.Timing{Keys: harness.FreshKeys(8)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.inTx(ctx, func(*sql.Tx) error { return nil }); err == nil {
		t.Error("a transaction of a context that has ended: no error")
	}
}
