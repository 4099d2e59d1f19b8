package line

import "time"

// SetClock lets a test move the time by which the breaker opens and closes.
func (l *Line) SetClock(now func() time.Time) { l.breaker.now = now }

// ComeNear makes a test's server count as near.
func (l *Line) ComeNear() { l.fast.rtt.Store(int64(fastRTT / 20)) }

// Near reports whether the next small pipeline runs on its caller's goroutine.
func (l *Line) Near() bool { return l.fast.may() }
