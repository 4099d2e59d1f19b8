package coalesce

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// batchesFrom is from how many calls at a time batches pay. Fewer are sent each by
	// itself, on connections of their own.
	batchesFrom = 8
	// inflightLimit bounds the calls of one Limiter that are on their way to the store or
	// wait for a batch. A store that is this far behind is not helped by more.
	inflightLimit = 64 << 10
)

// ErrFull is why a call beyond the limit has no answer. Nothing was sent.
var ErrFull = errors.New("too many calls wait for the store already")

// Limiter counts the single calls that are under way, whatever they ask for, and bounds them. A
// call counts until its caller runs again, not until its answer arrives. Most callers of a
// batch that was just answered will call again, and the first of them must not think that it
// is alone.
type Limiter struct {
	n atomic.Int64
	// Limit of the calls under way; it is not changed while there are any.
	Limit int64
}

// NewLimiter returns one for 65,536 calls.
func NewLimiter() *Limiter { return &Limiter{Limit: inflightLimit} }

// enter counts a call and returns how many there are, with it.
func (l *Limiter) enter() int64 { return l.n.Add(1) }
func (l *Limiter) leave()       { l.n.Add(-1) }

const (
	// itemTime is about how long a server works on one item. It is not part of the distance
	// to the server: another batch under way would only wait behind it.
	itemTime = 2 * time.Microsecond
	// rttPerSend is how much distance makes room for one more batch under way.
	rttPerSend = 100 * time.Microsecond
	minSends   = 4
	maxSends   = 16
	// nearShare is how many calls one more batch needs next to the store.
	nearShare = 16
)

// rttEstimator estimates how long a batch is under way to the store and back, the work of the
// server left out. It follows a shorter time at once and a longer one slowly: what makes
// a round trip long is mostly waiting.
type rttEstimator struct{ rtt time.Duration }

func (e *rttEstimator) note(took time.Duration, items int) {
	took = max(took-time.Duration(items)*itemTime, 1)
	if e.rtt == 0 || took < e.rtt {
		e.rtt = took
		return
	}
	e.rtt += (took - e.rtt) / 8
}

// sends is how many batches may be under way at once. Next to the store, a few keep it busy while
// callers wake up and ask for the next key, and more would be smaller. Far away from it, with so
// few, a call would take two round trips: in the first its caller would wait for the batch before
// its own to return.
func (e *rttEstimator) sends() int {
	return int(min(max(e.rtt/rttPerSend, minSends), maxSends))
}
