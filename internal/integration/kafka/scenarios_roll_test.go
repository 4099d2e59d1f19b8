package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
)

// both offers the group the old protocol and the new one: the step between two rolling restarts.
var both = saramaWith("sarama both", false, sarama.NewBalanceStrategyCooperativeSticky,
	sarama.NewBalanceStrategyRange)

// A group is moved from the eager to the cooperative protocol by two rolling restarts
// under load.
func TestRollFromEagerToCooperative(t *testing.T) {
	t.Parallel()
	s := eager.scene(t, 3, 4).nobodyDies()
	members := []*member{s.join(brief), s.join(brief)}
	s.wantMembers(2)
	sent := 0
	produce := func() {
		for p := range int32(4) {
			s.produce(numbered(p, 10_000*int(p)+sent, 100)...)
		}
		sent += 100
	}
	for _, next := range []flavor{both, cooperative} {
		s.flavor = next
		for i := range members {
			produce()
			members[i].leave(t)
			members[i] = s.join(brief)
			s.wantMembers(2)
		}
	}
	produce()
	s.wantAll(20*time.Second, members...)
}

// A static member leaves and is back within its session: nobody else gets its partitions
// meanwhile, and nothing runs twice.
func TestStaticMemberRestarts(t *testing.T) { eachFlavor(t, staticMemberRestarts) }

func staticMemberRestarts(t *testing.T, f flavor) {
	s := f.scene(t, 3, 4).nobodyDies()
	join := func(name string) *member {
		return s.join(brief, func(mc *memberConfig) { mc.instance = name })
	}
	a, b := join("a"), join("b")
	s.wantMembers(2)
	for round := range 3 {
		before := s.owners()
		more := func(from int) {
			for p := range int32(4) {
				s.produce(numbered(p, 10_000*int(p)+200*round+from, 100)...)
			}
		}
		more(0)
		a.leave(t)
		more(100)
		assert.Equal(t, before, s.owners(), "a's partitions moved while it was away")
		a = join("a")
		eventually(t, 10*time.Second, func() (bool, string) {
			return a.began.Load() > 0, "a gets nothing to do"
		})
	}
	s.wantAll(20*time.Second, a, b)
}

// owners returns the partitions of each static member.
func (s *scene) owners() map[string][]int32 {
	owners := map[string][]int32{}
	if info := s.cluster.GroupInfo(sceneGroup); info != nil {
		for _, m := range info.Members {
			if m.InstanceID != nil {
				owners[*m.InstanceID] = slices.Sorted(slices.Values(m.Assignment[sceneTopic]))
			}
		}
	}
	return owners
}

// When a member joins, a steady group revokes only the partitions that move, and the others go on.
// An eager group stops all partitions for a moment.
func TestWhatStaysGoesOn(t *testing.T) { eachFlavor(t, whatStaysGoesOn) }

func whatStaysGoesOn(t *testing.T, f flavor) {
	const partitions = 4
	s := f.scene(t, 3, partitions).nobodyDies()
	revoked := map[int32]bool{}
	a := s.join(brief, func(mc *memberConfig) {
		mc.Observer.Revoked = func(_ string, p int32, _, _ int) {
			s.note(func() { revoked[p] = true })
		}
	})
	for p := range int32(partitions) {
		s.produce(numbered(p, 10_000*int(p), 300)...)
	}
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.totalEffects() > 100, "no progress"
	})
	b := s.join(brief)
	s.wantMembers(2)
	s.mu.Lock()
	got, want := len(revoked), partitions
	s.mu.Unlock()
	if f.steady {
		want /= 2
	}
	assert.Equal(t, want, got, "partitions that were stopped when a member joined")
	s.wantAll(20*time.Second, a, b)
}
