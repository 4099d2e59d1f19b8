package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

const scanWindow = 10 * time.Hour

// landed records keys in one statement, so that they expire together if the engine uses one time
// for it.
func landed(t testing.TB, store dedup.Store, window time.Duration, n int) (ids []driver.ID) {
	t.Helper()
	var changes []driver.Finish
	for range n {
		id := randomID()
		ids = append(ids, id)
		changes = append(changes, driver.Finish{
			ID: id, Token: randomToken(), State: driver.StateSucceeded, EffectApplied: true,
			Window: window,
			Hold:   time.Hour,
		})
	}
	for _, a := range store.Finish(t.Context(), changes) {
		require.NoError(t, a.Err)
		require.True(t, a.Written, "%v", a)
	}
	return ids
}

// age makes keys older than they are.
func age(t testing.TB, db *sql.DB, e storeEngine, table string, by time.Duration,
	ids ...driver.ID) {
	t.Helper()
	var list []string
	for _, id := range ids {
		list = append(list, idLiteral(e.dialect, id))
	}
	_, err := db.ExecContext(t.Context(),
		fmt.Sprintf("UPDATE %s SET since = since - %d, expires = expires - %d WHERE id IN (%s)",
			quotedTable(e.dialect, table), by.Microseconds(), by.Microseconds(),
			strings.Join(list, ", ")))
	require.NoError(t, err)
}

// scan returns what is yielded, and the youngest age of each.
func scan(t testing.TB, store *sqlstore.Store,
	opts sqlstore.ScanOptions) map[driver.ID]time.Duration {
	t.Helper()
	if opts.ShortestWindow == 0 {
		opts.ShortestWindow = scanWindow
	}
	found := map[driver.ID]time.Duration{}
	err := store.Scan(t.Context(), opts, func(id driver.ID, age time.Duration) error {
		found[id] = age
		return nil
	})
	require.NoError(t, err)
	return found
}

// If a scan misses a record, a filter takes its key for new, and the effect runs again.
func TestScan(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		store, db, table := openStore(t, e)
		young, middle, old := landed(t, store, scanWindow, 7), landed(t, store, scanWindow, 5),
			landed(t, store, scanWindow, 3)
		age(t, db, e, table, 2*time.Hour, middle...)
		age(t, db, e, table, 5*time.Hour, old...)
		age(t, db, e, table, 11*time.Hour, landed(t, store, scanWindow, 1)...) // expired
		long := landed(t, store, 3*scanWindow, 1)
		age(t, db, e, table, 25*time.Hour, long...)
		failed, released, uncertain := mustAcquire(t, store, randomID()),
			mustAcquire(t, store, randomID()), mustAcquire(t, store, randomID())
		end(t, store, driver.Finish{ID: failed.ID, Token: failed.Token, State: driver.StateFailed,
			Window: scanWindow})
		end(t, store, driver.Finish{ID: released.ID, Token: released.Token,
			State: driver.StateReleased, Hold: time.Hour})
		danger := driver.Renewal{ID: uncertain.ID, Token: uncertain.Token, Lease: time.Minute,
			Irreversible: true, Window: scanWindow}
		a := store.Renew(t.Context(), []driver.Renewal{danger})[0]
		require.True(t, a.Held, "Renew: %+v", a)
		end(t, store, driver.Finish{ID: uncertain.ID, Token: uncertain.Token,
			State: driver.StateReleased, Window: scanWindow})
		err := store.Forget(t.Context(), landed(t, store, scanWindow, 1),
			time.Hour)[0]
		require.NoError(t, err)
		always := len(young) + 2
		all := always + len(middle) + len(old) + len(long)
		for opts, want := range map[sqlstore.ScanOptions]int{
			{}:                              all,
			{Page: 1}:                       all,
			{Page: 2}:                       all,
			{Age: 24 * time.Hour, Page: 6}:  all,
			{Age: 3 * time.Hour, Page: 3}:   always + len(middle),
			{Age: time.Hour}:                always,
			{Age: time.Hour, Page: 100_000}: always,
		} {
			assert.Len(t, scan(t, store, opts), want, "%+v", opts)
		}
		found := scan(t, store, sqlstore.ScanOptions{Page: 4})
		for what, row := range map[string]struct {
			ids  []driver.ID
			want time.Duration
		}{"young": {young, 0}, "middle": {middle, 2 * time.Hour}, "old": {old, 5 * time.Hour},
			"of a longer window": {long, 5 * time.Hour}} {
			for _, id := range row.ids {
				is, there := found[id]
				assert.True(t, there, "%s: there", what)
				assert.GreaterOrEqual(t, is, row.want, "%s: there", what)
				assert.LessOrEqual(t, is, row.want+time.Minute, "%s: there", what)
			}
		}
		for what, id := range map[string]driver.ID{"failed": failed.ID, "uncertain": uncertain.ID} {
			_, there := found[id]
			assert.True(t, there, "a record that is %s is passed over", what)
		}
	})
}

// A window that is shorter than the scan assumes: rows of the age that is read may expire
// before the rows that it begins with.
func TestScanOfAnotherWindow(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		store, _, _ := openStore(t, e)
		landed(t, store, scanWindow, 3)
		all := func(driver.ID, time.Duration) error { return nil }
		err := store.Scan(t.Context(),
			sqlstore.ScanOptions{ShortestWindow: scanWindow + time.Second}, all)
		assert.ErrorIs(t, err, sqlstore.ErrOtherWindow)
		scan(t, store, sqlstore.ScanOptions{ShortestWindow: scanWindow - time.Second})
	})
}

func TestScanEnds(t *testing.T) {
	store, _, _ := openStore(t, storeSQLite)
	landed(t, store, scanWindow, 3)
	enough := errors.New("enough")
	calls := 0
	opts := sqlstore.ScanOptions{ShortestWindow: scanWindow}
	err := store.Scan(t.Context(), opts, func(driver.ID, time.Duration) error {
		calls++
		return enough
	})
	assert.Same(t, enough, err, "an error of the caller is returned as it is")
	assert.Equal(t, 1, calls)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = store.Scan(ctx, opts, func(driver.ID, time.Duration) error {
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	for field, opts := range map[string]sqlstore.ScanOptions{
		"ScanOptions.ShortestWindow": {}, "ScanOptions.Age": {ShortestWindow: 1, Age: -1},
		"ScanOptions.Page": {ShortestWindow: 1, Page: 100_001},
	} {
		var input *dedup.InputError
		err := store.Scan(t.Context(), opts, func(driver.ID, time.Duration) error {
			return nil
		})
		require.ErrorAs(t, err, &input)
		assert.Equal(t, field, input.Field)
	}
	var input *dedup.InputError
	require.ErrorAs(t, store.Scan(t.Context(), opts, nil), &input, "no fn")
	assert.Equal(t, "fn", input.Field, "no fn")
}
