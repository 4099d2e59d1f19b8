package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"
)

// LagLimit is where [Lag] stops counting. To count all messages would be a scan of the table, and
// beyond the limit the exact number does not matter.
const LagLimit = 10_001

// Lag says how much waits to be published, and for how long.
type Lag struct {
	// Pending messages, up to [LagLimit].
	Pending int
	// Parked messages, up to [LagLimit].
	Parked int
	// Scheduled messages, which have a Message.NotBefore and were not moved to the pending ones
	// yet, up to [LagLimit].
	Scheduled int
	// Oldest is the age of the oldest pending message by the database's clock; zero when there is
	// none. The age of a scheduled message begins at its Message.NotBefore.
	Oldest time.Duration
}

// Lag asks the database, in one statement (MySQL: in a transaction) that reads at most [LagLimit]
// rows of each of three tables. The statement also passes over deleted rows that an old snapshot
// keeps in the database. With PostgreSQL it begins behind them if a relay of this Outbox runs on db
// in this process. Alarm on Oldest, which also grows when no relay runs at all, and on Parked.
func (o *Outbox) Lag(ctx context.Context, db *sql.DB) (Lag, error) {
	if err := o.checkDB(db); err != nil {
		return Lag{}, err
	}
	from, end, err := o.fresh(ctx, db)
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: lag: %w", err)
	}
	defer end()
	var lag Lag
	var oldest int64
	query, args := o.lagOf(db)
	err = from.QueryRowContext(ctx, query, args...).Scan(&lag.Pending, &lag.Parked, &lag.Scheduled,
		&oldest)
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: lag: %w", o.notMigrated(err))
	}
	lag.Oldest = max(0, time.Duration(oldest)*time.Microsecond)
	return lag, nil
}

// Stats counts what a relay has done since it was made.
type Stats struct {
	Published int64 // messages whose deletion is committed
	Batches   int64 // transactions that have deleted some of them
	// failures of single messages, calls that acknowledged nothing, and turns that failed
	Failures  int64
	Parked    int64 // messages
	Overtaken int64 // messages of [ErrOvertaken]
}

type counters struct{ published, batches, failures, parked, overtaken atomic.Int64 }

// Stats may be called at any time.
func (r *Relay) Stats() Stats {
	c := &r.stats
	return Stats{c.published.Load(), c.batches.Load(), c.failures.Load(), c.parked.Load(),
		c.overtaken.Load()}
}
