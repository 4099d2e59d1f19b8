package owned

import "time"

// instant is a time since Store.born by both clocks: the monotonic clock stands still while a
// machine is suspended, and the wall clock can be set back. A time is over when either clock says
// so.
type instant struct{ mono, wall time.Duration }

func (m instant) add(d time.Duration) instant { return instant{m.mono + d, m.wall + d} }

// before reports whether m was taken before other. The wall clock decides if the monotonic one has
// stood still between them, as on a suspended machine.
func (m instant) before(other instant) bool {
	return m.mono < other.mono || m.mono == other.mono && m.wall < other.wall
}

// moment is now.
func (s *Store) moment() instant {
	return instant{mono: s.now(), wall: s.wall().Round(0).Sub(s.born.Round(0))}
}

// now returns the monotonic time since the Store was made. By this clock alone, a time may be over
// late, but never early.
func (s *Store) now() time.Duration { return time.Since(s.born) }

// left returns how much longer the partition is held.
func (o *Ownership) left() time.Duration {
	until := o.valid.Load()
	if until == nil {
		return -1
	}
	now := o.s.moment()
	return min(until.mono-now.mono, until.wall-now.wall)
}
