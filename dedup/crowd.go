package dedup

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// crowdBegins is from how many calls at a time batches pay. Fewer are sent each by
	// itself, on connections of their own.
	crowdBegins = 8
	// crowdLimit bounds the calls of one Deduper that are on their way to the store or
	// wait for their turn. A store that is this far behind is not helped by more.
	crowdLimit = 64 << 10
)

// errCrowded is the answer to a call beyond crowdLimit. Nothing was sent.
var errCrowded = fmt.Errorf("%w: too many calls wait for the store already", ErrUnknown)

// crowd counts the single calls of one Deduper that are under way, whatever they ask
// for. A call counts until its caller runs again, not until its answer arrives. Most
// callers of a batch that was just answered will call again, and the first of them must not
// think that it is alone.
type crowd struct {
	n     atomic.Int64
	limit int64
}

func newCrowd() *crowd { return &crowd{limit: crowdLimit} }

// enter counts a call and returns how many there are, with it.
func (c *crowd) enter() int64 { return c.n.Add(1) }
func (c *crowd) leave()       { c.n.Add(-1) }

const (
	// itemTime is about how long a server works on one item. It is not part of the distance
	// to the server: another batch under way would only wait behind it.
	itemTime = 2 * time.Microsecond
	// tripPerSend is how much distance makes room for one more batch under way.
	tripPerSend = 100 * time.Microsecond
	minSends    = 2
	maxSends    = 16
	// nearShare is how many calls a second batch needs next to the store.
	nearShare = 24
)

// trip estimates how long a batch is under way to the store and back, the work of the
// server left out. It follows a shorter trip at once and a longer one slowly: what makes
// a trip long is mostly waiting.
type trip struct{ time time.Duration }

func (t *trip) note(took time.Duration, items int) {
	took = max(took-time.Duration(items)*itemTime, 1)
	if t.time == 0 || took < t.time {
		t.time = took
		return
	}
	t.time += (took - t.time) / 8
}

// sends is how many batches may be under way at once. Next to the store, one or two keep it
// busy, and more would be smaller. Far away from it, with so few, a call would take two
// trips: in the first its caller would wait for the batch before its own to come back.
func (t *trip) sends() int {
	return int(min(max(t.time/tripPerSend, minSends), maxSends))
}
