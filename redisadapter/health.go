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
	h := Health{Flagged: s.guard.flagged.Load(), BreakerOpen: s.breaker.open(),
		InFlight: len(s.rooms.all)}
	if v := s.guard.view.Load(); v.lost() {
		h.Amnesia, h.Remaining = true, time.Until(v.until)
	} else if until := s.guard.suspect.Load(); until != nil && time.Now().Before(*until) {
		h.Amnesia, h.Suspect, h.Remaining = s.guard.on(), true, time.Until(*until)
	}
	return h
}
