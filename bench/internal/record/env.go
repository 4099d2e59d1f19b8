// Package record is what the SQL benchmarks measure: the effect of messages and the record
// of them in one transaction, beside the effect alone and beside what else is done. suite.go
// has the workloads and their goals, side.go how one is timed, effect.go the effect.
package record

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/sqladapter"
)

// Env is where the workloads run.
type Env struct {
	// Servers that take part; SQLite is always there.
	Servers []*database.Server
	// Fill is how many marks are made when bytes are counted.
	Fill int
	// Live is how many marks a table keeps when its windows pass.
	Live int
	// Turns is how many windows pass.
	Turns int
	// Quick leaves out the points between others.
	Quick bool
}

// Scale sets what depends on how much time there is.
func (e *Env) Scale(quick bool) {
	e.Quick, e.Fill, e.Live, e.Turns = quick, 1_000_000, 100_000, 10
	if quick {
		e.Fill, e.Live = 100_000, 20_000
	}
}

// title of an engine, for people.
func title(d sqladapter.Dialect) string {
	return map[sqladapter.Dialect]string{
		sqladapter.Postgres: "PostgreSQL", sqladapter.MySQL: "MariaDB", sqladapter.SQLite: "SQLite",
	}[d]
}

// Versions of the drivers and of the servers.
func (e *Env) Versions(ctx context.Context) (map[string]string, error) {
	versions := harness.Versions(map[string]string{
		"github.com/jackc/pgx/v5": "pgx", "github.com/go-sql-driver/mysql": "go-sql-driver", "modernc.org/sqlite": "modernc.org/sqlite",
	})
	for _, s := range e.Servers {
		version, err := s.Version(ctx)
		if err != nil {
			return nil, err
		}
		versions[title(s.Dialect)] = version
	}
	return versions, nil
}

// Kind says what the servers are.
func (e *Env) Kind() string {
	own := 0
	for _, s := range e.Servers {
		if s.Own {
			own++
		}
	}
	if own == len(e.Servers) {
		return "databases on loopback, every commit on disk"
	}
	return fmt.Sprintf("%d of %d databases are others'", len(e.Servers)-own, len(e.Servers))
}

// CPU returns a function that tells the CPU time of all servers together: at any time one
// of them alone has work. Nil: none of them tells.
func (e *Env) CPU() func(context.Context) (time.Duration, error) {
	var reads []func(context.Context) (time.Duration, error)
	for _, s := range e.Servers {
		if read, ok := s.CPU(); ok {
			reads = append(reads, read)
		}
	}
	if reads == nil {
		return nil
	}
	return func(ctx context.Context) (total time.Duration, err error) {
		for _, read := range reads {
			cpu, err := read(ctx)
			if err != nil {
				return 0, err
			}
			total += cpu
		}
		return total, nil
	}
}
