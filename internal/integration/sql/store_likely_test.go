package sql_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestLikelyDuplicates counts what a claim costs, and what a filter in front of the store saves.
func TestLikelyDuplicates(t *testing.T) {
	_, _, table := openStore(t,
		storePostgres("", map[string]string{"default_query_exec_mode": "cache_statement"}))
	u, err := url.Parse(postgresURL(t, servertest.Postgres(t), "cache_statement"))
	require.NoError(t, err)
	p := newWireProxy(t, u.Host)
	u.Host = p.addr
	db := openDB(t, "pgx", u.String())
	db.SetMaxOpenConns(1)
	store := newStore(t, db, sqladapter.Postgres, table)
	seen := &seenFilter{}
	front, err := layered.Front(store, seen)
	require.NoError(t, err)

	id := func() driver.ID { return randomID() }
	req := func(id driver.ID, likely bool) driver.ClaimRequest {
		return driver.ClaimRequest{ID: id, Token: randomToken(), Lease: time.Minute,
			LikelyDuplicate: likely}
	}
	known := id()
	require.Equal(t, dedup.Acquired,
		front.Claim(t.Context(), []driver.ClaimRequest{req(known, false)})[0].Outcome)
	for _, tt := range []struct {
		name  string
		store dedup.Store
		reqs  func() []driver.ClaimRequest
		turns int
		want  []driver.Outcome
	}{
		{"new", store, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(id(), false)}
		}, 1, []driver.Outcome{dedup.Acquired}},
		{"known", store, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(known, false)}
		}, 2, []driver.Outcome{dedup.InFlight}},
		{"known, as expected", store, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(known, true)}
		}, 1, []driver.Outcome{dedup.InFlight}},
		{"new, and not expected", store, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(id(), true)}
		}, 2, []driver.Outcome{dedup.Acquired}},
		{"of both kinds, as expected", store, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(known, true), req(id(), false)}
		}, 2, []driver.Outcome{dedup.InFlight, dedup.Acquired}},
		{"of both kinds, and not expected", store, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(known, false), req(id(), true)}
		}, 3, []driver.Outcome{dedup.InFlight, dedup.Acquired}},
		{"new, behind a filter", front, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(id(), false)}
		}, 1, []driver.Outcome{dedup.Acquired}},
		{"known, behind a filter", front, func() []driver.ClaimRequest {
			return []driver.ClaimRequest{req(known, false)}
		}, 1, []driver.Outcome{dedup.InFlight}},
	} {
		for range 2 { // statements are prepared in the first
			p.arm(0, requestUnsent, nil)
			var got []driver.Outcome
			for i, ans := range tt.store.Claim(t.Context(), tt.reqs()) {
				require.NoError(t, ans.Err, fmt.Sprint(tt.name, " ", i))
				got = append(got, ans.Outcome)
			}
			assert.Equal(t, tt.want, got, tt.name)
		}
		turns, _ := p.counted()
		assert.Equal(t, tt.turns, turns, tt.name)
	}
}

// seenFilter knows what it was told.
type seenFilter struct{ ids map[[16]byte]bool }

func (f *seenFilter) Add(id [16]byte) {
	if f.ids == nil {
		f.ids = map[[16]byte]bool{}
	}
	f.ids[id] = true
}

func (f *seenFilter) Absent(id [16]byte, _ time.Duration) (bool, string) {
	if f.ids[id] {
		return false, "maybe"
	}
	return true, ""
}
