package workload

import (
	"strings"
	"testing"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/redisadapter"
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
			if p.Side != plain().name {
				t.Errorf("%d callers: %q has the goal %v", n, p.Side, p.Goal)
			}
		}
		if goals != 2 {
			t.Errorf("%d callers: %d goals, want one beside each of two peers", n, goals)
		}
	}
	for _, k := range NewEnv(nil, Scale{}).keepers() {
		if got, want := k.goal != (harness.Goal{}), k.name == compact().name; got != want {
			t.Errorf("memory of %q: goal %v", k.name, k.goal)
		}
	}
	for _, p := range localPairs() {
		if got, want := p.Goal != (harness.Goal{}), p.Side == seenSide; got != want {
			t.Errorf("%s: goal %q", p.Name, p.Goal)
		}
	}
	for _, p := range batchPairs(typical, 0) {
		if strings.HasPrefix(p.Side, compact().name) && p.Goal != (harness.Goal{}) {
			t.Errorf("%s: %s has the goal %v", p.Name, p.Side, p.Goal)
		}
	}
}

// What buckets hold is what they are planned for, or memory and CPU are those of others.
func TestBucketsArePlanned(t *testing.T) {
	for _, l := range layouts {
		l = l.expecting(1234)
		o := l.options(5)
		if o.Layout != l.kind {
			t.Errorf("%s: layout %v", l.name, o.Layout)
		}
		buckets := l.kind == redisadapter.Compact || l.kind == redisadapter.Mixed
		if want := map[bool]int{true: 1234}[buckets]; o.ExpectedKeys != want {
			t.Errorf("%s: ExpectedKeys %d, want %d", l.name, o.ExpectedKeys, want)
		}
		if buckets != (o.Window == 5) || buckets != (len(o.Secret) >= 16) {
			t.Errorf("%s: window %v, %d bytes of secret", l.name, o.Window, len(o.Secret))
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
