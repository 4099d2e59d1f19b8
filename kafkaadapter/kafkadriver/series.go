package kafkadriver

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// seriesFirst is the time between the first and the second line of a series. Each further wait
	// is twice as long, up to seriesMax.
	seriesFirst = time.Second
	seriesMax   = 5 * time.Minute
	// seriesErrors bounds the memory: after this many different errors all series begin anew.
	seriesErrors = 1000
)

// series logs errors that repeat: the first one at once, then fewer and fewer lines. A series ends
// when its error was not reported for as long as the last wait, and for at least a minute. The zero
// value is ready, and safe for concurrent use.
type series struct {
	mu   sync.Mutex
	runs map[string]*seriesRun
}

type seriesRun struct {
	last, next time.Time     // last reported; not logged again before next
	wait       time.Duration // from the next line to the one after it
	more       int           // not logged since the last line
}

// Warn logs an error of a client, unless the next line of its series is not due yet.
func (s *series) Warn(logger *slog.Logger, message string, err error) {
	if more, ok := s.due(err.Error(), time.Now()); ok {
		logger.Warn(message, "error", err, "times", more+1)
	}
}

// due reports whether a line is due, and how many were left out since the last one.
func (s *series) due(text string, now time.Time) (more int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[text]
	if r == nil || now.Sub(r.last) > max(r.wait, time.Minute) {
		if s.runs == nil || len(s.runs) >= seriesErrors {
			s.runs = make(map[string]*seriesRun)
		}
		r = &seriesRun{wait: seriesFirst}
		s.runs[text] = r
	}
	r.last = now
	if now.Before(r.next) {
		r.more++
		return 0, false
	}
	more, r.more = r.more, 0
	r.next, r.wait = now.Add(r.wait), min(2*r.wait, seriesMax)
	return more, true
}
