package redisbench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/work"
)

// A goal relative to plain commands belongs to the layout that sends plain commands.
func TestGoalsAreOfTheLayoutTheySpeakOf(t *testing.T) {
	const none = ""
	for _, n := range []int{1, 64, 256, 1024} {
		goals, s := 0, &harness.Setup{}
		compareCallers(s, "callers", n)
		for _, p := range s.Pairs {
			if p.Goal != none {
				goals++
				assert.Equal(t, work.Full.Name, p.Side, "%d callers: %v", n, p.Goal)
			}
		}
		assert.Equal(t, 2, goals, "%d callers: one goal next to each of two peers", n)
	}
	for _, k := range newEnv(nil, harness.Options{}).keepers() {
		assert.Equal(t, k.name == work.Compact.Name, k.goal != none, "memory of %q: %v", k.name,
			k.goal)
	}
	s := &harness.Setup{}
	compareLocal(s)
	for _, p := range s.Pairs {
		assert.Equal(t, p.Side == seenSide, p.Goal != none, "%s: %v", p.Name, p.Goal)
	}
	for _, underWay := range []int{workers, many} {
		goals := map[string]int{} // goals for rates, by peer
		b := inBatches(&harness.Setup{}, underWay, work.Typical)
		b.compare(true)
		for _, p := range b.Pairs {
			if p.Goal == none {
				continue
			}
			assert.False(t, strings.HasPrefix(p.Side, work.Compact.Name), "%s: %v", p.Name, p.Goal)
			if p.Metric == harness.Rate && p.Against != naiveSide {
				goals[p.Against]++
			}
		}
		assert.Equal(t, map[string]int{rawSide: 1, goRedisSide: 1}, goals, "%d under way", underWay)
	}
}

func TestPeersHaveAConnectionPerCaller(t *testing.T) {
	for callers, want := range map[int]int{1: 16, 64: 64, 256: 256, 1024: 256} {
		assert.Equal(t, want, peerPool(callers), "%d callers", callers)
	}
}
