package coalesce

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// batchesFrom is the number of concurrent calls from which batches pay off. If there are fewer,
	// each call is sent by itself, on its own connection.
	batchesFrom = 8
	// inflightLimit bounds the calls of one Limiter that are on their way to the store or
	// wait for a batch. A store that is this far behind is not helped by more.
	inflightLimit = 64 << 10
)

// ErrFull refuses a call beyond the limit. Nothing was sent.
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

// NewLimiter returns a Limiter for 65,536 calls.
func NewLimiter() *Limiter { return &Limiter{Limit: inflightLimit} }

// enter counts a call and returns the number of calls under way, this one included.
func (l *Limiter) enter() int64 { return l.n.Add(1) }
func (l *Limiter) leave()       { l.n.Add(-1) }

const (
	// itemTime is about how long a server works on one item. It is subtracted from the round trip,
	// because another batch would only wait at the server for that time.
	itemTime = 2 * time.Microsecond
	// rttPerSend is how much round-trip time allows one more batch under way.
	rttPerSend = 100 * time.Microsecond
	minSends   = 4
	maxSends   = 16
	// nearShare is how many calls have to wait before one more batch is sent to a store nearby.
	nearShare = 16
)

// rttEstimator estimates how long a batch is under way to the store and back, without the time that
// the server works on it. It follows a shorter time at once and a longer one slowly: what makes a
// round trip long is mostly waiting.
type rttEstimator struct{ rtt time.Duration }

func (e *rttEstimator) note(took time.Duration, items int) {
	took = max(took-time.Duration(items)*itemTime, 1)
	if e.rtt == 0 || took < e.rtt {
		e.rtt = took
		return
	}
	e.rtt += (took - e.rtt) / 8
}

// sends returns how many batches may be under way at once. Close to the store, a few batches keep
// it busy while callers wake up and ask for the next key, and more would only be smaller. Far from
// the store, so few batches would make a call take two round trips: it would wait for the batch
// before it, and then for its own.
func (e *rttEstimator) sends() int {
	return int(min(max(e.rtt/rttPerSend, minSends), maxSends))
}
