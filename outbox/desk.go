package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// desk hands the shards that have messages to the workers. It runs on one goroutine.
type desk struct {
	relay  *Relay
	jobs   chan int    // shards, to the workers
	done   chan report // back from them; has room for every shard, so that no worker is left behind on it
	shards []shard
	queue  []int // in hand, but not yet a worker's

	timer  *time.Timer // of the next poll
	next   time.Time   // when that is
	polled time.Time   // when the database was last asked
	found  time.Time   // when there was last something to publish
	errors int         // of polls, in a row
}

// shard is what a running relay keeps of one. But for the last two the fields are of who has it in
// hand.
type shard struct {
	limit    int       // messages to read, so that they fit BatchBytes
	failures int       // of whole batches, in a row
	sure     bool      // the last turn ended well: what is published can be deleted
	waiting  time.Time // since when all its messages wait, or zero
	until    time.Time // it waits
	inHand   bool      // of the desk
	again    bool      // of the desk: it had messages when it was in hand
}

// report is what came of one turn.
type report struct {
	shard int
	found bool // messages were published
	more  bool // there are likely more
	rests bool // it is to wait, until shard.until
}

func newDesk(r *Relay) *desk {
	n := r.box.dialect.shards
	d := &desk{relay: r, jobs: make(chan int), done: make(chan report, n), shards: make([]shard, n), found: time.Now()}
	for i := range d.shards {
		d.shards[i].limit = r.cfg.BatchSize
	}
	return d
}

func (d *desk) run(ctx context.Context) {
	wake, stop := d.relay.box.relays.add()
	defer stop()
	d.timer, d.next = time.NewTimer(0), time.Now()
	defer d.timer.Stop()
	for {
		var jobs chan<- int
		next := -1
		if len(d.queue) > 0 {
			jobs, next = d.jobs, d.queue[0]
		}
		select {
		case <-ctx.Done():
			return
		case jobs <- next:
			d.queue = d.queue[1:]
		case r := <-d.done:
			d.back(r)
		case <-wake:
			d.pollBy(time.Now())
		case <-d.timer.C:
			d.pollAt(time.Now().Add(d.poll(ctx)))
		}
	}
}

func (d *desk) pollAt(next time.Time) {
	d.next = next
	d.timer.Reset(time.Until(next))
}

// pollBy has the database asked at that time, unless it is asked before, or does not answer.
func (d *desk) pollBy(at time.Time) {
	if d.errors > 0 {
		return
	}
	if least := d.polled.Add(pollGap); at.Before(least) {
		at = least
	}
	if at.Before(d.next) {
		d.pollAt(at)
	}
}

func (d *desk) back(r report) {
	s := &d.shards[r.shard]
	s.inHand = false
	if r.found {
		d.found = time.Now()
	}
	switch {
	case r.rests:
		d.pollBy(s.until)
	case r.more, s.again: // also when nothing was found: it may have come after the turn had looked
		d.take(r.shard)
	}
	s.again = false
}

func (d *desk) take(no int) {
	d.shards[no].inHand = true
	d.queue = append(d.queue, no)
}

// poll takes every shard that has messages and does not wait, in an order of its own, so that
// relays do not follow each other around. It returns after what time to poll again.
func (d *desk) poll(ctx context.Context) time.Duration {
	busy, err := d.relay.busy(ctx)
	d.polled = time.Now()
	if err != nil {
		d.errors++
		if ctx.Err() == nil {
			d.relay.cfg.OnError(err)
		}
		// No longer than at other times: when the database is back nobody tells.
		return min(max(d.relay.cfg.least(), d.relay.cfg.retry().Delay(d.errors-1, 0, nil)), d.relay.cfg.PollMax)
	}
	d.errors = 0
	wait := min(max(d.polled.Sub(d.found)/idleShare, d.relay.cfg.PollMin), d.relay.cfg.PollMax)
	rand.Shuffle(len(busy), func(i, j int) { busy[i], busy[j] = busy[j], busy[i] })
	for _, no := range busy {
		switch s := &d.shards[no]; {
		case s.inHand:
			s.again = true
		case !d.polled.Before(s.until):
			d.take(no)
		default:
			wait = min(wait, s.until.Sub(d.polled))
		}
	}
	return wait
}

// busy asks which shards have messages.
func (r *Relay) busy(ctx context.Context) (shards []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	from, end, err := r.box.fresh(ctx, r.cfg.DB)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer end()
	rows, err := from.QueryContext(ctx, r.statements.busy)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var no int
		if err := rows.Scan(&no); err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		if no < 0 || no >= r.box.dialect.shards {
			return nil, fmt.Errorf("outbox: there are messages of shard %d", no)
		}
		shards = append(shards, no)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return shards, nil
}
