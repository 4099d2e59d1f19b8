package dedup

import (
	"sync/atomic"
	"time"
)

// The verdicts on a claim, as an Observer is told.
const (
	verdictNew     = "new"
	verdictMaybe   = "maybe"
	verdictUnknown = "unknown"

	// Reasons of this package for an unknown verdict. A filter has its own.
	reasonUntold = "leases_unknown" // Leases do not say what they remember
	reasonForgot = "leases_forgot"  // they have lost too much recently
)

// toldEvery is how often claims have the state of the filter told.
const toldEvery = time.Minute

// front is the filter in front of a store that keeps records, and what is known of it.
type front struct {
	filter    Filter
	remembers func() time.Duration // of leases; nil: they do not say
	wrong     func(n int)
	state     func() (fill, estimated, observed float64, reason string) // nil: it does not say
	observer  *Observer
	hot       time.Duration
	lease     time.Duration
	made      time.Time
	told      atomic.Int64 // when the state was told, since made
}

// verdict on one key.
type verdict struct {
	fresh  bool   // it is certainly in no record
	reason string // else why it may be in one; verdictMaybe when the filter has its bits
	saved  bool
}

func newFront(cfg *Config) *front {
	f := &front{filter: cfg.Filter, wrong: func(int) {}, observer: &cfg.Observer,
		hot: cfg.HotWindow, lease: cfg.LeaseTTL, made: time.Now()}
	if l, ok := cfg.Leases.(interface{ Remembers() time.Duration }); ok {
		f.remembers = l.Remembers
	}
	if w, ok := cfg.Filter.(interface{ Wrong(n int) }); ok {
		f.wrong = w.Wrong
	}
	hook := cfg.Observer.FilterState
	if hook == nil {
		return f
	}
	if s, ok := cfg.Filter.(interface {
		State() (fill, estimated, observed float64, reason string)
	}); ok {
		f.state = s.State
	}
	if s, ok := cfg.Filter.(interface {
		OnState(fn func(fill, estimated, observed float64, reason string))
	}); ok {
		s.OnState(func(fill, estimated, observed float64, reason string) {
			hook(Event{Fill: fill, Estimated: estimated, Observed: observed, Reason: reason})
		})
	}
	return f
}

// behind is how far the filter may lag behind the writes to the store. Leases remembers a key
// for the hot window after the last write to it, unless it has lost data since; and a record
// is sent to the store within a lease of that write. So the record of a key that Leases does
// not know was sent longer ago than this, or not at all. Zero and less is never.
func (f *front) behind() (time.Duration, string) {
	if f.remembers == nil {
		return 0, reasonUntold
	}
	kept := min(f.hot, f.remembers())
	return kept - f.lease - margin(kept), reasonForgot
}

// ask is what can be said of the keys now.
func (f *front) ask(reqs []ClaimRequest) []verdict {
	if f == nil {
		return nil
	}
	verdicts := make([]verdict, len(reqs))
	behind, reason := f.behind()
	for i := range reqs {
		verdicts[i] = f.judge(reqs[i].ID, behind, reason)
	}
	return verdicts
}

func (f *front) judge(id ID, behind time.Duration, reason string) verdict {
	if behind <= 0 {
		return verdict{reason: reason}
	}
	absent, why := f.filter.Absent(id, behind)
	return verdict{fresh: absent, reason: why}
}

// askAgain looks once more at the keys that are about to be granted as new. The answer from
// before the claim is about a time before it: meanwhile leases has forgotten more records,
// and may have lost data.
func (f *front) askAgain(reqs []ClaimRequest, answers []Answer, verdicts []verdict) {
	if f == nil {
		return
	}
	behind, reason := f.behind()
	for i := range verdicts {
		if v := &verdicts[i]; v.fresh && first(&answers[i]) {
			*v = f.judge(reqs[i].ID, behind, reason)
		}
	}
}

// first reports whether a claim was won of a key that leases know nothing of. Anything else
// may have been tried before, and have come as far as its record.
func first(ans *Answer) bool {
	return ans.Err == nil && ans.Outcome == Acquired && !ans.Mine && ans.Record.Attempt == 1
}

// settle reports the verdicts to the observer, and the wrong ones to the filter.
func (f *front) settle(reqs []ClaimRequest, answers []Answer, verdicts []verdict, wrong int) {
	if f == nil {
		return
	}
	if wrong > 0 {
		f.wrong(wrong)
	}
	if hook := f.observer.Filtered; hook != nil {
		for i := range verdicts {
			hook(verdicts[i].event(reqs[i].ID, &answers[i]))
		}
	}
	f.tellState()
}

func (v *verdict) event(id ID, ans *Answer) Event {
	e := Event{ID: id, Outcome: ans.Outcome, Err: ans.Err}
	switch {
	case v.fresh:
		e.Verdict = verdictNew
	case v.reason == verdictMaybe:
		e.Verdict = verdictMaybe
	default:
		e.Verdict, e.Reason = verdictUnknown, v.reason
	}
	if v.saved {
		e.Saved = 1
	}
	return e
}

// tellState reports the state of the filter, once a minute while there are claims.
func (f *front) tellState() {
	hook := f.observer.FilterState
	if hook == nil || f.state == nil {
		return
	}
	now, last := int64(time.Since(f.made)), f.told.Load()
	if now-last < int64(toldEvery) || !f.told.CompareAndSwap(last, now) {
		return
	}
	fill, estimated, observed, reason := f.state()
	hook(Event{Fill: fill, Estimated: estimated, Observed: observed, Reason: reason})
}
