package owned

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
)

// TestAHeadBehindTheMap: a server has lost the last change of the mapping. The map, on another
// server, still has it. The partition can be acquired, but as shared: it may have granted claims
// under the version before.
func TestAHeadBehindTheMap(t *testing.T) {
	for name, fix := range map[string]func(t *testing.T, client redis.UniversalClient, o Options){
		"Acquire": func(*testing.T, redis.UniversalClient, Options) {},
		"Init": func(t *testing.T, c redis.UniversalClient, o Options) {
			noErr(t, Init(t.Context(), c, o))
			heads, err := readHeads(t.Context(), c, []string{newNames(o.Prefix, "g/t", 1).head})
			noErr(t, err)
			assert.EqualValues(t, 2, heads[0].MapVersion, "after Init its head")
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				s := plainStore(t, b.Client, fewBuckets(b.Prefix))
				p := Partition{Source: "g/t", Number: 1, Count: 2}
				letGo(t, takeLoaded(t, s, p))
				s.mustMap(t, 3)
				head := newNames(b.Prefix, "g/t", 1).head
				noErr(t, b.Client.HSet(t.Context(), head, "mapver", 1, "shared", 0).Err())
				fix(t, b.Client, s.opts)
				p.Count = 3
				o := takeLoaded(t, s, p)
				h := o.state(t)
				assert.EqualValues(t, 2, h.MapVersion, "its head")
				assert.GreaterOrEqual(t, h.SharedUntil, time.Duration(time.Now().UnixNano())+
					s.registry.span()-time.Minute)
				assert.True(t, o.isShared(), "its head is %+v", h)
				letGo(t, o)
			})
		})
	}
}

// TestAMapBehindItsHeads: the record has lost its last change, but the partitions have not. The
// record gets a version above theirs, and they are shared: the lost change is not known in full.
func TestAMapBehindItsHeads(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		s := plainStore(t, b.Client, fewBuckets(b.Prefix))
		p := Partition{Source: "g/t", Number: 1, Count: 2}
		letGo(t, takeLoaded(t, s, p))
		before := b.Client.Get(t.Context(), s.registry.key).Val()
		s.mustMap(t, 3)
		heads, err := s.registry.heads(t.Context(), "g/t", 3)
		noErr(t, err)
		for i, h := range heads {
			require.EqualValues(t, 2, h.MapVersion, "partition %d has not heard of the change", i)
		}
		noErr(t, b.Client.Set(t.Context(), s.registry.key, before, 0).Err())
		for number := range int32(2) { // long ago
			noErr(t, b.Client.HSet(t.Context(), newNames(b.Prefix, "g/t", number).head,
				"shared", 0).Err())
		}
		o := takeLoaded(t, s, p)
		h := o.state(t)
		assert.GreaterOrEqual(t, h.MapVersion, uint64(3), "its head")
		assert.True(t, o.isShared(), "its head is %+v", h)
		s.registry.sound(t, "g/t")
		letGo(t, o)
	})
}
