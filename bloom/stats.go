package bloom

import "sync/atomic"

// stripes is the number of copies of the counters. Goroutines that ask for different ids seldom
// write to the same copy.
const stripes = 16

type counts struct {
	answers [3]atomic.Uint64
	reasons [reasons]atomic.Uint64
	_       [40]byte // two cache lines
}

func (f *Filter) count(d digest, a Answer, r Reason) {
	c := &f.counts[d.bits>>60]
	c.answers[a].Add(1)
	if r != None {
		c.reasons[r].Add(1)
	}
}

// countAll counts a batch, whose Unknowns all have the same reason.
func (f *Filter) countAll(n *[3]uint64, why Reason) {
	c := &f.counts[0]
	for a := range n {
		if n[a] > 0 {
			c.answers[a].Add(n[a])
		}
	}
	if n[Unknown] > 0 {
		c.reasons[why].Add(n[Unknown])
	}
}

// Stats are the figures of a filter. Rates are shares of 1.
type Stats struct {
	Fill      float64 // share of bits set, mean of the generations that have any
	Estimated float64 // rate of false positives over all generations, by their bits
	// the answers reported to Wrong, as a share of these and all ProvenNew; 0 before the first
	Observed      float64
	KeysEstimated float64 // ids in all generations, by their bits
	Bytes         uint64  // allocated for bits
	Rotations     uint64
	Grown         uint64          // layers added
	Answers       [3]uint64       // by Answer: how often it was given
	Reasons       [reasons]uint64 // by Reason: how often an Unknown was given for it
	Reason        Reason          // why nothing is New now; Expired is not reported here
}

// Wrong reports that n answers Maybe were false positives: the store had no mark of the id.
func (f *Filter) Wrong(n int) {
	if n > 0 {
		f.wrong.Add(uint64(n))
	}
}

// Stats looks at some thousands of blocks of each generation: call it once a minute, not once a
// message.
func (f *Filter) Stats() Stats {
	t := f.live.Load()
	s := Stats{Rotations: f.rotations.Load(), Grown: f.grown.Load(), Reason: t.reason()}
	for _, g := range t.gens {
		_, keys := g.sample()
		s.KeysEstimated += keys
		s.Bytes += g.bytes()
	}
	s.Fill, s.Estimated, s.Observed = t.fill(), t.estimated(), f.observed()
	for i := range f.counts {
		for a := range s.Answers {
			s.Answers[a] += f.counts[i].answers[a].Load()
		}
		for r := range s.Reasons {
			s.Reasons[r] += f.counts[i].reasons[r].Load()
		}
	}
	return s
}

// State returns what OnState reports, as of now: the share of bits set, the estimated and the
// observed rate of false positives, and the reason why no id can be New, or "" if ids can be New.
// See [Stats], also for what it costs.
func (f *Filter) State() (fill, estimated, observed float64, reason string) {
	s := f.Stats()
	return s.Fill, s.Estimated, s.Observed, s.Reason.String()
}

func (f *Filter) observed() float64 {
	wrong := float64(f.wrong.Load())
	asked := wrong
	for i := range f.counts {
		asked += float64(f.counts[i].answers[ProvenNew].Load())
	}
	if asked == 0 {
		return 0
	}
	return wrong / asked
}
