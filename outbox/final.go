package outbox

import (
	"context"
	"slices"
	"strings"
	"time"
)

// finalFor is how long a shard is read from a final id on. Then it is read from the beginning once,
// for rows that were not inserted under a new id: the topic of a row was changed by hand, or the
// table was emptied and counts anew.
const finalFor = time.Minute

// prepared is the name of every transaction that is prepared, see statement/postgres.sql.
const prepared = "prepared"

// finality says which id of the table is final: every transaction that may have been given an id up
// to it has ended, so that no smaller one can appear any more. Where the database does not say so,
// no id is final.
type finality struct {
	id     int64     // zero: not known
	at     time.Time // a read that begins later sees all that was committed up to id
	server int64     // that says so

	next    int64     // what id becomes when the writers have ended
	since   time.Time // when next was seen
	writers []string  // that may have been given an id up to next, and have not ended
	askAt   time.Time // when to ask again
}

// writers are the transactions that insert.
type writers struct {
	top    int64 // an id that was given out before
	server int64 // zero: the database cannot tell
	open   []string
}

// saw takes an answer of the same server as before. A transaction that is not among f.writers has
// begun after next was given out, and has a larger id. But one that is prepared may be one of them
// under another name.
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

// of is the id up to which a look has seen all that will ever be there, or zero.
func (f *finality) of(l look) int64 {
	if l.server != f.server || !l.at.After(f.at) {
		return 0
	}
	return f.id
}

// checkFinality asks the database which transactions still insert, while a topic is left out or
// rows that are dead make polls expensive. Without the right to see them no id is final.
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

// forget has every shard read from the beginning, until an id is final again. A server that has
// taken over, or has crashed, may give out ids again that were given out before.
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
