package redisadapter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// TestMovingOnlyNew: a key has no attempt only if neither store has one. Its claim is free only if
// neither store has a live one.
func TestMovingOnlyNew(t *testing.T) {
	released := func(b *bench) { b.finish(by(9, change(1, driver.StateReleased))) }
	uncertain := func(b *bench) {
		b.Renew(b.Context(), []driver.Renewal{{ID: newID(1), Token: driver.Token{0xff, 9},
			Lease: time.Minute, Hold: time.Hour, Window: time.Hour, Irreversible: true}})
		released(b)
	}
	live := func(*bench) {}
	for name, row := range map[string]struct {
		lead, follow func(*bench) // what ends a claim of the key there; nil: no claim
		want         driver.Outcome
		left         bool // no live lease remains
	}{
		"new in both":                        {nil, nil, dedup.Acquired, false},
		"released in lead":                   {released, nil, dedup.InFlight, true},
		"released in follow":                 {nil, released, dedup.InFlight, true},
		"released in both":                   {released, released, dedup.InFlight, true},
		"released in lead, live in follow":   {released, live, dedup.InFlight, false},
		"live in lead, released in follow":   {live, released, dedup.InFlight, false},
		"live in follow":                     {nil, live, dedup.InFlight, false},
		"released in lead, unsure in follow": {released, uncertain, dedup.Uncertain, false},
		"unsure in follow":                   {nil, uncertain, dedup.Uncertain, false},
	} {
		t.Run(name, func(t *testing.T) {
			mini, client := redistest.Freeze(t)
			lead := open(t, redistest.Backend{Client: client, Prefix: "old"})
			follow := open(t, redistest.Backend{Client: client, Prefix: "next"})
			for _, half := range []*struct {
				b    *bench
				then func(*bench)
			}{{&bench{t, lead, mini, client}, row.lead},
				{&bench{t, follow, mini, client}, row.follow}} {
				if half.then != nil {
					half.b.claim(tokened(9))
					half.then(half.b)
				}
			}
			req := tokened(1)
			req.OnlyNew = true
			a := moving(t, lead, follow).Claim(t.Context(), []driver.ClaimRequest{req})[0]
			assert.NoError(t, a.Err)
			assert.Equal(t, row.want, a.Outcome, "%+v", a)
			assert.Equal(t, a.Record.Remaining <= 0, row.left, "%+v", a)
			assert.Equal(t, 1, a.Record.Attempt, "%+v", a)
			if row.want == dedup.Acquired {
				return
			}
			for _, store := range []dedup.Store{lead, follow} {
				rec := store.Lookup(t.Context(), []driver.ID{newID(1)})[0].Record
				assert.LessOrEqual(t, rec.Attempt, 1, "it was counted: %+v", rec)
			}
		})
	}
}
