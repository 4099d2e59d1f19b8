package webhook

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxGuarded bounds each of the two generations of a replayGuard: full, both take about 10 MB.
const maxGuarded = 1 << 16

// replayGuard binds each signed token to the first event that came with it, for providers that do
// not sign the body. Without it, anybody with a captured token could send other events with it. It
// is in memory, and so knows only the deliveries of one process.
type replayGuard struct {
	keep time.Duration // at least, unless there are more than maxGuarded tokens in it

	mu         sync.Mutex
	since      time.Time // of young
	young, old map[[16]byte][16]byte
}

// bind reports whether the token belongs to the event; a new token is bound to it. Call it after
// the signature is verified: otherwise anybody could bind the token of a future event, or fill the
// memory.
func (g *replayGuard) bind(token, event string, now time.Time) bool {
	t, e := guarded(token), guarded(event)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, generation := range []map[[16]byte][16]byte{g.young, g.old} {
		if bound, ok := generation[t]; ok {
			return bound == e
		}
	}
	if g.young == nil || len(g.young) >= maxGuarded || now.Sub(g.since) > g.keep {
		g.old, g.young, g.since = g.young, map[[16]byte][16]byte{}, now
	}
	g.young[t] = e
	return true
}

func guarded(s string) [16]byte {
	sum := sha256.Sum256([]byte(s))
	return [16]byte(sum[:16])
}

// recent checks the signed time of a provider that does not say whether each attempt has a new
// time. The time may be horizon and five minutes old, and five minutes in the future.
func recent(sent, now time.Time, horizon time.Duration) error {
	if age := now.Sub(sent); age > horizon+tolerance || age < -tolerance {
		return ErrStale
	}
	return nil
}
