package outbox

import (
	"context"
	"slices"
	"strings"
	"time"
)

// finalFor is how long a shard is read only from a final id on. Then it is read from the beginning
// once, to find rows without a new id: somebody may have changed the topic of a row by hand, or
// have emptied the table so that its ids start again.
const finalFor = time.Minute

// prepared is the common name of all prepared transactions, see statement/postgres.sql.
const prepared = "prepared"

// finality says which id of the table is final: every transaction that may have been given an id up
// to it has ended, so no smaller id can appear any more. Where the database cannot show this, no id
// is final.
type finality struct {
	id     int64     // zero: not known
	at     time.Time // a read that begins later sees all that was committed up to id
	server int64     // the server that says so

	next    int64     // what id becomes when the writers have ended
	since   time.Time // when next was seen
	writers []string  // transactions that may have an id up to next, and have not ended
	askAt   time.Time // when to ask again
}

// writers are the transactions that insert messages.
type writers struct {
	top    int64 // an id that was given out before the query
	server int64 // zero: the database cannot tell
	open   []string
}

// saw evaluates an answer of the same server as before. A transaction that is not among f.writers
// began after next was given out, and has a larger id. The exception is a prepared transaction,
// which may be one of them under another name.
func (f *finality) saw(w writers, asked, answered time.Time) {
	if f.next == 0 {
		f.next, f.since, f.writers = w.top, asked, w.open
	} else {
		f.writers = slices.DeleteFunc(w.open, func(one string) bool {
			return one != prepared && !slices.Contains(f.writers, one)
		})
	}
	if len(f.writers) > 0 {
		f.askAt = answered.Add(min(max(answered.Sub(f.since), firstLook), wholeLook))
		return
	}
	f.id, f.at, f.next = f.next, answered, 0
	f.askAt = answered.Add(wholeLook)
}

// of returns the id up to which the look has seen every message that will ever be there, or zero.
func (f *finality) of(l look) int64 {
	if l.server != f.server || !l.at.After(f.at) {
		return 0
	}
	return f.id
}

// checkFinality asks the database which transactions still insert, while a topic is left out or
// dead rows make polls expensive. Without the right to see these transactions no id is final.
func (d *dispatcher) checkFinality(ctx context.Context) {
	_, out := d.relay.topics.now()
	asked := time.Now()
	if !out && !d.isDead(asked) || asked.Before(d.final.askAt) ||
		d.relay.statements.writers == "" {
		return
	}
	w, err := d.relay.writers(ctx, d.shards)
	answered := time.Now()
	if err != nil || w.server != d.final.server {
		d.forget()
	}
	if err != nil || w.server == 0 {
		d.final.askAt = answered.Add(finalFor)
		return
	}
	d.final.server = w.server
	w.top = max(w.top, d.final.id)
	d.final.saw(w, asked, answered)
	if least := answered.Add(costFactor * answered.Sub(asked)); d.final.askAt.Before(least) {
		d.final.askAt = least
	}
}

// forget makes turns read every shard from the beginning, until an id is final again. A server that
// has taken over, or has crashed, may give out the same ids again.
func (d *dispatcher) forget() {
	d.final = finality{}
	for i := range d.shards {
		d.shards[i].final = 0
	}
}

// writers asks which transactions may still commit a message.
func (r *Relay) writers(ctx context.Context, all []shard) (w writers, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var args []any
	if r.box.dialect.kind == Postgres {
		args = []any{arrayOf(all, func(s *shard) int64 { return s.final })}
	}
	var open string
	err = r.cfg.DB.QueryRowContext(ctx, r.statements.writers, args...).Scan(&w.top, &w.server,
		&open)
	w.open = strings.Fields(open)
	return w, err
}
