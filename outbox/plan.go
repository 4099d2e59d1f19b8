package outbox

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// probeRows is how many messages are read to find the one that a probe sends.
const probeRows = 32

// plan is what a turn gives to the publisher.
type plan struct {
	batches []*batch // each of one topic
	probes  []probe
	refused []failure
}

// probe is one message of a topic that is left out.
type probe struct {
	batch   *batch
	counted *failing
}

func (p *plan) empty() bool { return len(p.batches)+len(p.probes)+len(p.refused) == 0 }

// give returns the probes to the topics when the turn does not make them.
func (p *plan) give(t *topics) {
	for _, one := range p.probes {
		t.postponed(one.counted)
	}
}

// gather reads the messages to publish. The plan is never nil.
func (s *session) gather(l *locked, j job, state *shard, o *outcome) (*plan, error) {
	p := &plan{}
	first, err := s.batches(l, j, state, p, o)
	if err == nil {
		var other int64
		other, err = s.probes(l, j.shard, state, p)
		if first == 0 {
			first = other
		}
	}
	if err != nil {
		return p, fmt.Errorf("outbox: read: %w", err)
	}
	if !p.empty() && !state.sure {
		if err := s.rehearse(l, j.shard, first); err != nil {
			return p, fmt.Errorf(
				"outbox: nothing is published, because it could not be deleted: %w", err)
		}
	}
	return p, nil
}

// batches plans a batch for each topic that is not left out. It returns the id of a row that it has
// read, or zero.
//
// If an earlier turn saw only messages of topics that are left out up to some id, it first looks
// behind that id. When it finds a message there, it reads from the last final id on, or from the
// beginning: a message with a smaller id may have been committed since, and have the same key. It
// reads from the beginning in two cases. A topic that has come back since the job was made has
// messages before the final id. A server that has taken over may give out ids up to the final one
// again.
func (s *session) batches(l *locked, j job, state *shard, p *plan, o *outcome) (first int64,
	err error) {
	out, epoch := s.topics.names()
	known := len(out)
	out = state.withCalls(out)
	where := selection{shard: j.shard, limit: state.limit, topics: out}
	if epoch == j.epoch && l.server == j.server {
		where.low = j.final
	}
	began, top := time.Now(), int64(-1)
	switch {
	case len(out) == 0, 0 < j.low && j.low <= where.low:
	case j.low > 0:
		ahead := where
		ahead.low, ahead.limit = j.low, 1
		rows, _, err := s.query(l, s.statements.read, ahead)
		if err != nil || len(rows) == 0 {
			o.behind = err == nil
			return 0, err
		}
	default:
		if top, err = s.top(l, j.shard); err != nil {
			return 0, err
		}
	}
	rows, full, left, err := s.read(l, where)
	if err != nil {
		return 0, err
	}
	state.limit = s.limitAfter(state.limit, len(rows), full)
	o.full, o.behind = full, len(rows) == 0 && len(out) > 0
	if len(rows) > 0 {
		first = rows[0].id
		if top < 0 || first <= top {
			top = first - 1
		}
	}
	if len(out) > 0 && len(out) == known && !left && top >= 0 {
		o.look = look{top, began, epoch, l.server, false}
	}
	if j.dead && len(out) == 0 && !left {
		o.look = look{firstBehind(rows), began, epoch, l.server, true}
	}
	b := s.pick(rows)
	o.left = left || len(b.rows)+len(b.refused) < len(rows)
	p.refused = append(p.refused, b.refused...)
	p.batches = b.split(s.topics.isOut)
	o.waits = len(b.rows)+len(b.refused) == 0 && o.left
	return first, nil
}

// withCalls adds the topics of calls in this shard that have not ended. Such a topic may have come
// back meanwhile, by a call in another shard: without this the messages of the unfinished call
// would be published again.
func (s *shard) withCalls(out []string) []string {
	for _, c := range s.calls {
		if !slices.Contains(out, c.topic) {
			out = append(out, c.topic)
		}
	}
	return out
}

func (s *shard) isCalling(topic string) bool {
	return slices.ContainsFunc(s.calls, func(c *call) bool { return c.topic == topic })
}

// split makes a batch for each topic, except for topics that have been left out meanwhile.
func (b *batch) split(isOut func(topic string) bool) (all []*batch) {
	of := map[string]*batch{}
	for i, row := range b.rows {
		one, seen := of[row.Topic]
		if !seen {
			if !isOut(row.Topic) {
				one = &batch{}
				all = append(all, one)
			}
			of[row.Topic] = one
		}
		if one != nil {
			one.rows, one.messages = append(one.rows, row), append(one.messages, b.messages[i])
		}
	}
	return all
}

// firstBehind is the id up to which a read has found nothing.
func firstBehind(rows []row) int64 {
	if len(rows) == 0 {
		return math.MaxInt64
	}
	return rows[0].id - 1
}

// probes plans one message for each topic whose delay is over. A probe may take as long as any
// call, so it needs a lock that can be kept: while no more locks can be kept there is no probe.
func (s *session) probes(l *locked, no int, state *shard, p *plan) (first int64, err error) {
	for topic, counted := range s.topics.due(no) {
		if err != nil || state.isCalling(topic) || cap(s.kept) > 0 && !s.keep(l) {
			s.topics.postponed(counted)
			continue
		}
		var rows []row
		var left bool
		rows, _, left, err = s.read(l, selection{shard: no, limit: probeRows, only: topic})
		if err != nil {
			s.topics.postponed(counted)
			continue
		}
		b := s.pick(rows)
		p.refused = append(p.refused, b.refused...)
		if len(rows) > 0 {
			first = rows[0].id
		}
		if len(b.rows) == 0 {
			s.topics.skipped(topic, counted, len(rows) == 0 && !left)
			continue
		}
		p.probes = append(p.probes,
			probe{&batch{rows: b.rows[:1], messages: b.messages[:1]}, counted})
	}
	return first, err
}

// limitAfter is how many messages to read next, so that they fit BatchBytes.
func (r *Relay) limitAfter(limit, read int, full bool) int {
	switch {
	case full && read < limit: // BatchBytes has ended the read
		return max(1, read)
	case full:
		return min(2*limit, r.cfg.BatchSize)
	default:
		return limit
	}
}
