package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
)

// Snapshot is a transaction that keeps the database from removing rows that were deleted since it
// began. See [Outbox.OldestSnapshot].
type Snapshot struct {
	// Kind is "session", "prepared transaction" or "replication slot".
	Kind string
	// Name is the process id of the session (MySQL: the connection id), or the name of the prepared
	// transaction or of the slot.
	Name string
	// Age of the transaction; zero for a slot.
	Age time.Duration
	// User that it belongs to.
	User string
	// Application is the application_name of a session of PostgreSQL.
	Application string
	// State of the session, such as "idle in transaction" (MySQL: its command, such as Sleep).
	State string
	// Query that the session runs, or has run last, up to 500 bytes. It may have data in it.
	Query string
}

// OldestSnapshot names the transaction that holds the oldest snapshot of the database (MySQL: of
// the server). While it lasts, PostgreSQL cannot vacuum, nor InnoDB purge, rows that were deleted
// since: reads of an outbox pass over all messages that were published meanwhile. It returns a zero
// Snapshot if there is none that the user may see: with PostgreSQL the role pg_read_all_stats may
// see those of other users. MySQL and MariaDB return an error without the right PROCESS, and show
// a transaction late to whoever asks often: InnoDB renews innodb_trx only when nobody has read it
// for 100 ms. SQLite has none. One round trip, three with MySQL and MariaDB.
//
// While a statement runs whose bytes are not UTF-8, MySQL does not show innodb_trx. Then
// OldestSnapshot asks performance_schema, which needs the right SELECT there. Without an answer it
// asks both again, up to ten times, 20 ms apart.
func (o *Outbox) OldestSnapshot(ctx context.Context, db *sql.DB) (Snapshot, error) {
	if err := o.checkDB(db); err != nil {
		return Snapshot{}, err
	}
	if o.dialect.holder == "" {
		return Snapshot{}, nil
	}
	for n := 1; ; n++ {
		s, err := o.oldestSnapshot(ctx, db, o.dialect.holder)
		if !sqlerr.Unshowable(err) {
			return s, err
		}
		shown, other := o.oldestSnapshot(ctx, db, o.dialect.holderBytes)
		if shown != (Snapshot{}) {
			return shown, nil
		}
		if n == snapshotTries || backoff.Sleep(ctx, snapshotPause) != nil {
			return Snapshot{}, errors.Join(err, other)
		}
	}
}

// snapshotTries is how often MySQL is asked while it cannot show the statements that run.
const (
	snapshotTries = 10
	snapshotPause = 20 * time.Millisecond
)

func (o *Outbox) oldestSnapshot(ctx context.Context, db *sql.DB, statement string) (Snapshot,
	error) {
	from, end, err := o.fresh(ctx, db)
	if err != nil {
		return Snapshot{}, fmt.Errorf("outbox: snapshot: %w", err)
	}
	defer end()
	var s Snapshot
	var age int64
	err = from.QueryRowContext(ctx, statement).Scan(&s.Kind, &s.Name, &age, &s.User,
		&s.Application, &s.State, &s.Query)
	if errors.Is(err, sql.ErrNoRows) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("outbox: snapshot: %w", err)
	}
	s.Age = time.Duration(age) * time.Microsecond
	return s, nil
}

// SnapshotError is given to RelayConfig.OnError, at most once in a minute, when a poll of a relay
// is slow and an old transaction is the likely reason. Nothing has failed, but the relay polls less
// often.
type SnapshotError struct {
	// Poll is how long the last poll took.
	Poll time.Duration
	// Snapshot is the transaction to end.
	Snapshot Snapshot
}

// Error names the transaction. It leaves out its query, which may have data in it.
func (e *SnapshotError) Error() string {
	s := e.Snapshot
	return fmt.Sprintf("outbox: a poll took %v: the database keeps the rows of published messages for "+
		"%s %s of user %q, application %q, state %q, which has a transaction open since %v; end it",
		e.Poll, s.Kind, s.Name, s.User, s.Application, s.State, s.Age)
}

const (
	// slowPoll is the time from which on a poll is reported as slow, if a transaction is open for
	// at least oldSnapshot.
	slowPoll    = 20 * time.Millisecond
	oldSnapshot = 10 * time.Second
	// reportEvery is the shortest time between two reports.
	reportEvery = time.Minute
)

// reporter limits how often the dispatcher looks for the reason of slow polls.
type reporter struct {
	slow int       // polls in a row
	next time.Time // no look before this time
}

// diagnose looks for the transaction that makes polls slow. It ignores a single slow poll, which
// may be chance.
func (d *dispatcher) diagnose(ctx context.Context) {
	if d.cost < slowPoll {
		d.report.slow = 0
		return
	}
	if d.report.slow++; d.report.slow < 2 || d.polled.Before(d.report.next) {
		return
	}
	d.report.next = d.polled.Add(reportEvery)
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	s, err := d.box().OldestSnapshot(ctx, d.relay.cfg.DB)
	if err == nil && (s.Age >= oldSnapshot || s.Kind == "replication slot") {
		d.relay.cfg.OnError(&SnapshotError{Poll: d.cost, Snapshot: s})
	}
}
