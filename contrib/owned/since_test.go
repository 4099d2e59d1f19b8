package owned

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// TestABeginOutlivesALapse: the lease has run out without another owner, and the owner continues in
// a new epoch. A key that it had begun still runs. Another partition, or a Forget in another
// process, must not take it for an attempt that died: the effect would run twice at a time.
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
		found, err := all[0].askOthers(t.Context(), membersOf(all[0], []driver.ID{id}))
		noErr(t, err)
		assert.Equal(t, (remoteState{live: true}), found[0])
		err = all[0].s.Forget(t.Context(), []driver.ID{id}, storyHold)[0]
		assert.ErrorIs(t, err, dedup.ErrInFlight, "forgotten in another process")
		owner.endOf(t, field, id)

		field = owner.beginOf(t, id)
		noErr(t, b.Client.Del(t.Context(), owner.names.own).Err()) // dies
		takeLoaded(t, plainStore(t, b.Client, fewBuckets(b.Prefix)), owner.part)
		found, err = all[0].askOthers(t.Context(), membersOf(all[0], []driver.ID{id}))
		noErr(t, err)
		assert.False(t, found[0].live, "%s of an owner that was replaced", field)
		assert.Equal(t, 1, found[0].runs, "%s of an owner that was replaced", field)
	})
}
