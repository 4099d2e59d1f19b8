package torture_test

import "math/rand/v2"

// point is a place in a delivery's life at which its process may die or stop.
type point uint8

const (
	live          point = iota
	delivered           // C1: nothing was sent
	claimUnread         // C2: the claim was executed, its reply is not read
	claimed             // C3: before the effect
	amidEffect          // C4
	effectUnsaid        // C5: after the effect, before the mark
	markUnread          // C6: the mark was executed, its reply is not read
	unacked             // C7: after the mark, before the ack
	uncommitted         // C8: acked, and the source forgot it
	markTorn            // C9: while a large mark is written
	closing             // C10: while the process ends in good order
	pauseClaimed        // SIGSTOP instead of SIGKILL
	pauseEffect         //
	pauseUnmarked       //
	points
)

func (p point) String() string {
	return [...]string{"", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "P3",
		"P4", "P5"}[p]
}

func (p point) pauses() bool { return p >= pauseClaimed }

// crashes are C1 to C10, pauses are P3 to P5.
var (
	crashes = []point{delivered, claimUnread, claimed, amidEffect, effectUnsaid, markUnread,
		unacked, uncommitted, markTorn, closing}
	pauses = []point{pauseClaimed, pauseEffect, pauseUnmarked}
)

// fates are points, and how rare they are: one delivery in Every meets one of them. If Every is 0,
// none does.
type fates struct {
	Points []point
	Every  int
}

// fated is how many deliveries of a message may meet a fate. A later one has to be acknowledged.
const fated = 6

// of draws what happens to a delivery; it depends only on the seed. Each point meets the same
// share of the messages' first deliveries, so that even a small run meets each point. Later
// deliveries meet fewer points, by chance: most of them find the message done.
func (f fates) of(seed uint64, message, delivery uint32) point {
	if f.Every == 0 || delivery > fated {
		return live
	}
	rng := rand.New(rand.NewPCG(seed, uint64(message)<<32|uint64(delivery)))
	if delivery > 1 {
		if rng.IntN(3*f.Every) > 0 {
			return live
		}
		return f.Points[rng.IntN(len(f.Points))]
	}
	if (uint64(message)+seed)%uint64(f.Every) > 0 {
		return live
	}
	return f.Points[(uint64(message)+seed)/uint64(f.Every)%uint64(len(f.Points))]
}
