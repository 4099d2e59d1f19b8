package bloom

import "math"

// EventKind is what happened to a filter.
type EventKind uint8

// The kinds of events.
const (
	Rotated EventKind = iota + 1 // Generation is the newest from here on
	Grown                        // Generation got another layer of bits
	// hits answer Unknown from here on, as long as the generations are that full
	SaturatedNow
	CoverageLost // nothing is New from here on, for Reason
	// all generations are covered and a feed is open: New is possible
	Covered
)

// String returns the kind as logs name it.
func (k EventKind) String() string {
	switch k {
	case Rotated:
		return "rotated"
	case Grown:
		return "grown"
	case SaturatedNow:
		return "saturated"
	case CoverageLost:
		return "lost"
	case Covered:
		return "covered"
	default:
		return "invalid"
	}
}

// Event describes a change: see Options.OnEvent.
type Event struct {
	Kind       EventKind
	Generation int64
	Reason     Reason  // of CoverageLost; for the others, why nothing is New, or None
	Fill       float64 // share of bits set, mean of the generations that have any, as last sampled
	Estimated  float64 // rate of false positives over all generations, by their bits
}

// OnState makes the filter call fn with its state at each event: the share of bits set, the
// estimated and the observed rate of false positives, and the reason why no id can be New. The
// reason is "" if ids can be New. It replaces an earlier fn; nil ends the calls. fn is called like
// Options.OnEvent. Package dedup finds this method by its name, and reports the state of the filter
// to an Observer.
func (f *Filter) OnState(fn func(fill, estimated, observed float64, reason string)) {
	if fn == nil {
		f.onState.Store(nil)
		return
	}
	f.onState.Store(&fn)
}

// notify hands out events; no lock is held.
func (f *Filter) notify(t *table, events []Event) {
	if len(events) == 0 {
		return
	}
	fill, estimated := t.fill(), t.estimated()
	for _, e := range events {
		e.Fill, e.Estimated = fill, estimated
		if e.Kind != CoverageLost {
			e.Reason = t.reason()
		}
		if f.opts.OnEvent != nil {
			f.opts.OnEvent(e)
		}
		if fn := f.onState.Load(); fn != nil {
			(*fn)(fill, estimated, f.observed(), e.Reason.String())
		}
	}
}

func (t *table) fill() float64 {
	sum, n := 0.0, 0.0
	for _, g := range t.gens {
		if g.all() != nil {
			sum, n = sum+math.Float64frombits(g.fill.Load()), n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}
