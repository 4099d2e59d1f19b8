package owned

import (
	"errors"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
)

// TestABeginOutlivesALapse: the lease has run out with nobody there, and the owner goes on in
// another epoch. What it had begun runs still: another partition, or a Forget from another process,
// must not take it for an attempt that died, or the effect runs beside it.
func TestABeginOutlivesALapse(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		all := owners(t, b.Client, b.Prefix, 2)
		id := idsOf(t, "k", 1)[0]
		owner := all[1]
		field := owner.beginOf(t, id)
		for range 2 {
			noErr(t, b.Client.Del(t.Context(), owner.names.own).Err())
			noErr(t, owner.reacquire(t.Context()))
		}
		found, err := all[0].elsewhere(t.Context(), membersOf(all[0], []dedup.ID{id}))
		noErr(t, err)
		if want := (elsewhere{live: true}); found[0] != want {
			t.Errorf("found %+v, want %+v", found[0], want)
		}
		if err := all[0].s.Forget(t.Context(), []dedup.ID{id}, storyHold)[0]; !errors.Is(err,
			dedup.ErrInFlight) {
			t.Errorf("forgotten in another process: %v", err)
		}
		owner.endOf(t, field, id)

		field = owner.beginOf(t, id)
		noErr(t, b.Client.Del(t.Context(), owner.names.own).Err()) // dies
		takeLoaded(t, plainStore(t, b.Client, fewBuckets(b.Prefix)), owner.part)
		found, err = all[0].elsewhere(t.Context(), membersOf(all[0], []dedup.ID{id}))
		noErr(t, err)
		if found[0].live || found[0].runs != 1 {
			t.Errorf("%s of an owner that was replaced: %+v", field, found[0])
		}
	})
}
