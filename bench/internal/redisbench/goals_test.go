package redisbench

import (
	"strings"
	"testing"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/work"
)

// A goal that compares plain commands with plain commands is of the layout that sends them.
func TestGoalsAreOfTheLayoutTheySpeakOf(t *testing.T) {
	for _, n := range []int{1, 64, 256, 1024} {
		goals := 0
		for _, p := range callerPairs("callers", n) {
			if p.Goal == (harness.Goal{}) {
				continue
			}
			goals++
			if p.Side != plain().Name {
				t.Errorf("%d callers: %q has the goal %v", n, p.Side, p.Goal)
			}
		}
		if goals != 2 {
			t.Errorf("%d callers: %d goals, want one beside each of two peers", n, goals)
		}
	}
	for _, k := range newEnv(nil, harness.Options{}).keepers() {
		if got, want := k.goal != (harness.Goal{}), k.name == small().Name; got != want {
			t.Errorf("memory of %q: goal %v", k.name, k.goal)
		}
	}
	for _, p := range localPairs() {
		if got, want := p.Goal != (harness.Goal{}), p.Side == seenSide; got != want {
			t.Errorf("%s: goal %q", p.Name, p.Goal)
		}
	}
	for _, p := range batchPairs(work.Typical, true) {
		if strings.HasPrefix(p.Side, small().Name) && p.Goal != (harness.Goal{}) {
			t.Errorf("%s: %s has the goal %v", p.Name, p.Side, p.Goal)
		}
	}
}

func TestPeersHaveAConnectionPerCaller(t *testing.T) {
	for callers, want := range map[int]int{1: 16, 64: 64, 256: 256, 1024: 256} {
		if got := peerPool(callers); got != want {
			t.Errorf("%d callers: pool of %d, want %d", callers, got, want)
		}
	}
}
