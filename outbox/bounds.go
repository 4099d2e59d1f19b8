package outbox

import "database/sql"

// bounds are ids, found by a relay, up to which the shards are empty for good. Lag of the same
// database begins behind them.
type bounds struct {
	db     *sql.DB
	server int64
	low    string // an array of PostgreSQL
}

// publishBounds makes the bounds known to Lag.
func (o *Outbox) publishBounds(d *dispatcher) {
	if o.dialect.kind != Postgres {
		return
	}
	known := false
	for i := range d.shards { // a worker may be using the other fields of a shard
		known = known || d.shards[i].final > 0
	}
	if _, out := d.relay.topics.now(); out || !known {
		o.bounds.Store(nil)
		return
	}
	o.bounds.Store(&bounds{d.relay.cfg.DB, d.final.server,
		arrayOf(d.shards, func(s *shard) int64 { return s.final })})
}

// lagOf is the statement of Lag, with its arguments.
func (o *Outbox) lagOf(db *sql.DB) (query string, args []any) {
	args = []any{LagLimit, LagLimit, LagLimit}
	if b := o.bounds.Load(); b != nil && b.db == db {
		return o.dialect.lagBehind, append(args, b.low, b.server)
	}
	return o.dialect.lag, args
}
