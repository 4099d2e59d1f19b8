package owned

import "time"

// instant is a time since Store.born by both clocks: the monotonic one stands still while a machine
// is suspended, and the wall clock can be set back. A time is over when either says so.
type instant struct{ mono, wall time.Duration }

func (m instant) add(d time.Duration) instant { return instant{m.mono + d, m.wall + d} }

// before reports which of two was taken first: a suspended machine's clock may stand still between
// them.
func (m instant) before(other instant) bool {
	return m.mono < other.mono || m.mono == other.mono && m.wall < other.wall
}

// moment is now.
func (s *Store) moment() instant {
	return instant{mono: s.now(), wall: s.wall().Round(0).Sub(s.born.Round(0))}
}

// now is the monotonic time since the Store was made: a time that is over by it alone is over
// late, never early.
func (s *Store) now() time.Duration { return time.Since(s.born) }

// left is for how long from now the partition is held.
func (o *Ownership) left() time.Duration {
	until := o.valid.Load()
	if until == nil {
		return -1
	}
	now := o.s.moment()
	return min(until.mono-now.mono, until.wall-now.wall)
}
