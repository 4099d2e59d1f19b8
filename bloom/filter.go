package bloom

import (
	"crypto/rand"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Filter remembers ids for a window of time in generations of bits. All methods may be called from
// any goroutine at any time. It starts none.
type Filter struct {
	opts   Options
	plan   Plan
	slice  time.Duration
	secret secret
	born   time.Time

	live atomic.Pointer[table]
	// held to replace live and feed; guards generation.through, Feed.lost. Taken after grow
	mu   sync.Mutex
	feed atomic.Pointer[Feed] // the last one begun

	grow sync.Mutex // one layer is made at a time, within MaxBytes
	// Filter.newLayer; tests use it to stop between the choice of a generation and its bits
	layer func(uint64) *layer

	onState   atomic.Pointer[func(fill, estimated, observed float64, reason string)]
	counts    [stripes]counts
	wrong     atomic.Uint64
	rotations atomic.Uint64
	grown     atomic.Uint64
}

// New makes a filter. It says Unknown until a Feed covers it: an empty filter proves nothing. Bits
// are allocated when a generation gets its first id. An error names the field that is wrong.
func New(o Options) (*Filter, error) {
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	o, _ = o.withDefaults() // Plan had no objection
	if o.MaxBytes == 0 {
		o.MaxBytes = int64(2 * plan.Bytes)
	}
	key := append([]byte(nil), o.Secret...)
	if key == nil {
		key = make([]byte, secretBytes)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("bloom: random secret: %w", err)
		}
	}
	o.Secret = key
	f := &Filter{opts: o, plan: plan, slice: o.slice(), secret: newSecret(key), born: time.Now()}
	f.layer = f.newLayer
	empty := &table{newest: math.MinInt64 / 2, gens: make([]*generation, plan.Generations),
		before: NotCovered}
	f.live.Store(f.moved(empty, f.index(f.instant(time.Now()))))
	return f, nil
}

// Plan returns the plan that New made of its options.
func (f *Filter) Plan() Plan { return f.plan }

// index returns the index of the generation that now belongs to, by Options.Clock.
func (f *Filter) index(now instant) int64 { return floorDiv(f.clock(now), f.slice) }

func (f *Filter) clock(now instant) time.Duration {
	if f.opts.Clock != nil {
		return f.opts.Clock()
	}
	return now.mono
}

func floorDiv(a, b time.Duration) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return int64(q)
}

// at returns the live table, with a new generation if the newest one is over by now.
func (f *Filter) at(now instant) *table {
	t := f.live.Load()
	if clock := f.clock(now); clock >= t.ends { // so it divides only once in a slice
		return f.rotate(floorDiv(clock, f.slice))
	}
	return t
}

// rotate makes index the newest generation if it is newer than the present one, because the index
// never goes back. It returns the table that is live after that.
func (f *Filter) rotate(index int64) *table {
	return f.change(func(t *table) (*table, []Event) {
		if index <= t.newest {
			return t, nil
		}
		next := f.moved(t, index)
		next.saturated = f.tooFull(next)
		f.rotations.Add(1)
		return next, []Event{{Kind: Rotated, Generation: index}}
	})
}

// change replaces the live table, and reports the events after it has released the lock.
func (f *Filter) change(how func(*table) (*table, []Event)) *table {
	f.mu.Lock()
	next, events := how(f.live.Load())
	f.live.Store(next)
	f.mu.Unlock()
	f.notify(next, events)
	return next
}

// Add remembers an id in the newest generation. Call it before the id's effect or its mark is sent:
// an extra bit is harmless, but a missing bit lets a duplicate through. A Check that begins after
// Add has returned finds the id, until the window is over. It takes a lock only for the first id of
// a generation and for growth.
func (f *Filter) Add(id [16]byte) {
	f.addFrom(f.at(f.instant(time.Now())), f.secret.id(id))
}

// addFrom writes into the newest generation of t, and into what has become the newest meanwhile.
// The table is read again after the write. If it were read only before the write, the generation
// could be dropped in between, and the id would be in bits that nobody looks at.
func (f *Filter) addFrom(t *table, d digest) {
	for {
		f.write(t.last(), d)
		now := f.live.Load()
		if now.newest == t.newest {
			return
		}
		t = now
	}
}

// Check says whether id is ProvenNew, or Maybe, or why neither can be said. It takes no lock
// and allocates nothing, unless it is the first to see that a slice of time is over.
//
// ProvenNew holds at the moment of the call, on the condition that nobody adds the same id
// meanwhile: make sure that only one caller at a time works on an id before it asks the filter.
// Before you grant something because of it, check again that the time given to [Feed.Open] is not
// over.
func (f *Filter) Check(id [16]byte) (Answer, Reason) {
	now := f.instant(time.Now())
	t := f.at(now)
	d := f.secret.id(id)
	reason := t.reason()
	if reason == None && !now.before(t.until) {
		reason = Expired
	}
	answer := Unknown
	if reason == None {
		answer, reason = t.answer(t.has(d))
	}
	f.count(d, answer, reason)
	return answer, reason
}

// answer returns the answer of a covered table.
func (t *table) answer(hit bool) (Answer, Reason) {
	switch {
	case !hit: // a proof at any fill: a Bloom filter has no false negatives
		return ProvenNew, None
	case t.saturated:
		return Unknown, Saturated
	default:
		return Maybe, None
	}
}

// Where is Check for callers who know where the marks of each generation lie: bit i of in says that
// generation oldest+i may hold the id. It reads no clock: it opens no generation, and the caller
// itself checks the time given to Feed.Open when it grants something. If the answer is Unknown, the
// bits of in for generations that are not covered mean nothing.
func (f *Filter) Where(id [16]byte) (oldest int64, in uint64, answer Answer, reason Reason) {
	t := f.live.Load()
	d := f.secret.id(id)
	m := d.mask()
	for i, g := range t.gens {
		if g.has(d, &m) {
			in |= 1 << i
		}
	}
	if reason = t.reason(); reason == None {
		answer, reason = t.answer(in != 0)
	}
	f.count(d, answer, reason)
	return t.oldest(), in, answer, reason
}

// Absent reports whether it is certain that no mark with this id was committed longer ago than the
// duration before. Otherwise it returns why it cannot say so: the text of the Reason, or "maybe".
// Unlike Check it needs only Feed.Through. It costs as much as Check.
func (f *Filter) Absent(id [16]byte, before time.Duration) (absent bool, reason string) {
	now := f.instant(time.Now())
	t := f.at(now)
	d := f.secret.id(id)
	why, answer := t.reason(), Unknown
	if why == None && !now.before(t.until) && !t.reaches(now, before) {
		why = Expired
	}
	if why == None {
		answer, why = t.answer(t.has(d))
	}
	f.count(d, answer, why)
	if answer == Maybe {
		return false, Maybe.String()
	}
	return answer == ProvenNew, why.String()
}

// reaches reports whether every mark that was committed longer ago than the duration before was
// fed.
func (t *table) reaches(now instant, before time.Duration) bool {
	return t.through != instant{} && now.since(t.through) <= before
}
