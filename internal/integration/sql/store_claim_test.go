package sql_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func randomID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func randomToken() (token driver.Token) {
	_, _ = rand.Read(token[:])
	return token
}

// mustAcquire claims a key for an hour.
func mustAcquire(t testing.TB, store dedup.Store, id driver.ID) driver.ClaimRequest {
	t.Helper()
	req := driver.ClaimRequest{ID: id, Token: randomToken(), Lease: time.Hour, Hold: time.Hour}
	wantAcquired(t, store, req)
	return req
}

func wantAcquired(t testing.TB, store dedup.Store, req driver.ClaimRequest) dedup.Record {
	t.Helper()
	a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
	require.NoError(t, a.Err)
	require.Equal(t, dedup.Acquired, a.Outcome)
	return a.Record
}

func lookupOne(t testing.TB, store dedup.Store, id driver.ID) dedup.Record {
	t.Helper()
	a := store.Lookup(t.Context(), []driver.ID{id})[0]
	require.NoError(t, a.Err)
	return a.Record
}
