package redisadapter

import "time"

// Health is what a [Store] knows about its server, for a readiness probe and metrics.
type Health struct {
	// Amnesia says that claims follow Options.Amnesia now: data is lost, or, with
	// Suspect, may be. Remaining is for how much longer.
	Amnesia, Suspect bool
	Remaining        time.Duration
	// Flagged counts claims that AllowAndFlag has granted in spite of amnesia.
	Flagged uint64
	// BreakerOpen says that the server cannot be reached, so that calls fail at once.
	BreakerOpen bool
	// InFlight is the number of pipelines under way.
	InFlight int
}

// Health returns what is known now. It asks nobody, and never blocks for long.
func (s *Store) Health() Health {
	h := Health{Flagged: s.guard.Flagged.Load(), BreakerOpen: s.breaker.open(),
		InFlight: len(s.rooms.all)}
	h.Amnesia, h.Suspect, h.Remaining = s.guard.Health()
	return h
}

// Remembers returns for how long the server has certainly kept all that it was told, as far as this
// process has seen. That is the time since the last loss, suspicion, ClearAmnesia or Init that it
// noticed, and the largest Duration if it noticed none. It is 0 with GuardOff, which notices
// nothing. It is 0 as well once New, [Store.Watch] or a claim has met a server that may evict keys
// (its maxmemory-policy), or does not say whether it may.
//
// Losses are noticed with a batch of claims that wins some, so ask after that was answered. A loss
// before this process began counts only if it is not acknowledged yet. Remembers asks no server.
// Package layered looks for this method when it has a Filter.
func (s *Store) Remembers() time.Duration { return s.guard.Remembers() }
