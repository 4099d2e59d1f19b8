package sql_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/resolver"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// TestResolverAskThatGoesWrong: a function that panics, ends its goroutine, or does not return
// takes neither the process nor the other keys with it, and its key is asked about again.
func TestResolverAskThatGoesWrong(t *testing.T) {
	const long, short = time.Minute, 200 * time.Millisecond
	for name, tt := range map[string]struct {
		wrong func(ctx context.Context)
		told  string
		lease time.Duration // short where it has to lapse
	}{
		"panic":  {func(context.Context) { panic("no such account") }, "no such account", long},
		"goexit": {func(context.Context) { runtime.Goexit() }, "", short},
		"hangs":  {func(ctx context.Context) { <-ctx.Done() }, "deadline exceeded", long},
	} {
		t.Run(name, func(t *testing.T) {
			store, _, _ := openStore(t, storeSQLite)
			id := uncertainKey(t, store)
			var asks atomic.Int32
			told := make(chan string, 100) // on a slow machine, also errors of the store
			r, err := resolver.New(store, resolver.Config{
				Window: time.Hour, Lease: tt.lease, Timeout: 50 * time.Millisecond,
				Wait: time.Millisecond, Every: 5 * time.Millisecond,
				Failed: func(err error) {
					select {
					case told <- err.Error():
					default:
					}
				},
				Ask: func(ctx context.Context, _ resolver.UncertainRecord) (dedup.Resolution,
					error) {
					if asks.Add(1) == 1 {
						tt.wrong(ctx)
						return dedup.Resolution{}, ctx.Err()
					}
					return dedup.Happened([]byte("receipt")), nil
				},
			})
			require.NoError(t, err)
			ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute,
				errors.New("the key was not resolved"))
			defer stop()
			ran := make(chan error, 1)
			go func() { ran <- r.Run(ctx) }()
			for state := driver.StateAbsent; state != driver.StateSucceeded; {
				ans := store.Lookup(ctx, []driver.ID{id})[0]
				require.NoError(t, ans.Err)
				state = ans.Record.State
			}
			stop()
			<-ran
			close(told)
			var all []string
			for text := range told {
				all = append(all, text)
			}
			assert.Contains(t, strings.Join(all, "\n"), tt.told, "Failed was told %q", all)
		})
	}
}

// uncertainKey returns the id of an attempt that was marked irreversible and then released.
func uncertainKey(t *testing.T, store *sqlstore.Store) driver.ID {
	t.Helper()
	id, err := driver.NewID("payments", "", "order 4711")
	require.NoError(t, err)
	token := driver.Token{1}
	danger := driver.Renewal{ID: id, Token: token, Lease: time.Minute, Hold: time.Hour,
		Window: time.Hour, Irreversible: true}
	for _, ans := range []driver.Answer{
		store.Claim(t.Context(),
			[]driver.ClaimRequest{{ID: id, Token: token, Lease: time.Minute, Hold: time.Hour}})[0],
		store.Renew(t.Context(), []driver.Renewal{danger})[0],
	} {
		require.NoError(t, ans.Err)
	}
	change := driver.Finish{ID: id, Token: token, State: driver.StateReleased, Hold: time.Hour,
		Window: time.Hour}
	ans := store.Finish(t.Context(), []driver.Finish{change})[0]
	require.NoError(t, ans.Err)
	require.Equal(t, driver.StateUncertain, ans.Record.State)
	return id
}
