package layered

import (
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// The filter's opinions on a claim, as an Observer gets them.
const (
	opinionNew     = "new"
	opinionMaybe   = "maybe"
	opinionUnknown = "unknown"

	// Reasons of this package why the opinion is unknown. A filter has its own reasons.
	reasonUntold = "hot_unknown" // hot does not say what it remembers
	reasonForgot = "hot_forgot"  // it has lost too much recently
)

// toldEvery is how often the state of the filter is reported, while there are claims.
const toldEvery = time.Minute

// filterStage is the filter in front of a store that keeps records, and what is known of it.
type filterStage struct {
	filter    Filter
	remembers func() time.Duration // of hot; nil: it does not say
	wrong     func(n int)
	state     func() (fill, estimated, observed float64, reason string) // nil: it does not say
	observer  *dedup.Observer
	hot       time.Duration
	lease     time.Duration
	made      time.Time
	told      atomic.Int64 // when the state was last reported, since made
}

// opinion on one key.
type opinion struct {
	fresh  bool   // it is certainly in no record
	reason string // else why it may be in one; opinionMaybe when the filter has its bits
	saved  bool
}

func newFilterStage(hot driver.Store, cfg *Config) *filterStage {
	f := &filterStage{filter: cfg.Filter, wrong: wrongOf(cfg.Filter), observer: &cfg.Observer,
		hot: cfg.HotWindow, lease: cfg.LeaseTTL, made: time.Now()}
	if l, ok := hot.(interface{ Remembers() time.Duration }); ok {
		f.remembers = l.Remembers
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
			hook(dedup.Event{Fill: fill, Estimated: estimated, Observed: observed, Reason: reason})
		})
	}
	return f
}

// wrongOf returns the method Wrong of a filter, or a function that does nothing.
func wrongOf(filter Filter) func(n int) {
	if w, ok := filter.(interface{ Wrong(n int) }); ok {
		return w.Wrong
	}
	return func(int) {}
}

// behind returns how far the filter may lag behind the writes to the store. Hot remembers a key for
// the hot window after the last write to it, unless it has lost data since; and a record is sent to
// the store within a lease of that write. So the record of a key that hot does not know was sent
// longer ago than this, or not at all. Zero or less means that no key is proven new.
func (f *filterStage) behind() (time.Duration, string) {
	if f.remembers == nil {
		return 0, reasonUntold
	}
	kept := min(f.hot, f.remembers())
	return kept - f.lease - drift(kept), reasonForgot
}

// drift is what two clocks may differ by in the course of d: 1 %, and 2 ms for timers.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// ask asks the filter about the keys.
func (f *filterStage) ask(reqs []driver.ClaimRequest) []opinion {
	if f == nil {
		return nil
	}
	opinions := make([]opinion, len(reqs))
	behind, reason := f.behind()
	for i := range reqs {
		opinions[i] = f.judge(reqs[i].ID, behind, reason)
	}
	return opinions
}

func (f *filterStage) judge(id driver.ID, behind time.Duration, reason string) opinion {
	if behind <= 0 {
		return opinion{reason: reason}
	}
	absent, why := f.filter.Absent(id, behind)
	return opinion{fresh: absent, reason: why}
}

// askAgain looks once more at the keys that are about to be granted as new. The first answer
// was about the time before the claim: since then hot has forgotten more records, and may have
// lost data.
func (f *filterStage) askAgain(reqs []driver.ClaimRequest, answers []driver.Answer,
	opinions []opinion) {
	if f == nil {
		return
	}
	behind, reason := f.behind()
	for i := range opinions {
		if v := &opinions[i]; v.fresh && first(&answers[i]) {
			*v = f.judge(reqs[i].ID, behind, reason)
		}
	}
}

// first reports whether a claim was won, and hot knows of no earlier claim of the key. Otherwise an
// earlier attempt may have come as far as its record in cold.
func first(ans *driver.Answer) bool {
	return ans.Err == nil && ans.Outcome == driver.Acquired && !ans.Mine && ans.Record.Attempt == 1
}

// settle reports the opinions to the observer, and the wrong ones to the filter.
func (f *filterStage) settle(reqs []driver.ClaimRequest, answers []driver.Answer,
	opinions []opinion, wrong int) {
	if f == nil {
		return
	}
	if wrong > 0 {
		f.wrong(wrong)
	}
	if hook := f.observer.Filtered; hook != nil {
		for i := range opinions {
			hook(opinions[i].event(reqs[i].ID, &answers[i]))
		}
	}
	f.reportState()
}

func (v *opinion) event(id driver.ID, ans *driver.Answer) dedup.Event {
	e := dedup.Event{ID: id, Outcome: ans.Outcome, Err: ans.Err}
	switch {
	case v.fresh:
		e.FilterAnswer = opinionNew
	case v.reason == opinionMaybe:
		e.FilterAnswer = opinionMaybe
	default:
		e.FilterAnswer, e.Reason = opinionUnknown, v.reason
	}
	if v.saved {
		e.Saved = 1
	}
	return e
}

// reportState reports the state of the filter, once a minute while there are claims.
func (f *filterStage) reportState() {
	hook := f.observer.FilterState
	if hook == nil || f.state == nil {
		return
	}
	now, last := int64(time.Since(f.made)), f.told.Load()
	if now-last < int64(toldEvery) || !f.told.CompareAndSwap(last, now) {
		return
	}
	fill, estimated, observed, reason := f.state()
	hook(dedup.Event{Fill: fill, Estimated: estimated, Observed: observed, Reason: reason})
}
