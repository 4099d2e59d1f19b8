package settle

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var key = driver.ID{1}

// between is a store that runs a function before the first Claim, or Forget.
type between struct {
	dedup.Store
	happens func()
}

func (s *between) once() {
	if f := s.happens; f != nil {
		s.happens = nil
		f()
	}
}

func (s *between) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	s.once()
	return s.Store.Claim(ctx, reqs)
}

func (s *between) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	s.once()
	return s.Store.Forget(ctx, ids, hold)
}

func claim(t *testing.T, s dedup.Store, token byte) driver.Finish {
	t.Helper()
	a := s.Claim(t.Context(),
		[]driver.ClaimRequest{{ID: key, Token: driver.Token{token}, Lease: time.Minute,
			Hold: time.Hour, TakeUncertain: true}})[0]
	require.NoError(t, a.Err)
	require.Equal(t, dedup.Acquired, a.Outcome)
	return driver.Finish{ID: key, Token: driver.Token{token}, Fence: a.Record.Fence,
		Attempt: a.Record.Attempt, Lease: time.Minute, Hold: time.Hour, Window: time.Hour}
}

// doubt leaves the key uncertain.
func doubt(t *testing.T, s dedup.Store, token byte) {
	t.Helper()
	c := claim(t, s, token)
	danger := driver.Renewal{ID: c.ID, Token: c.Token, Fence: c.Fence, Lease: c.Lease, Hold: c.Hold,
		Window: c.Window, Irreversible: true}
	require.True(t, s.Renew(t.Context(), []driver.Renewal{danger})[0].Held)
	c.State = driver.StateReleased
	end(t, s, c)
	require.Equal(t, driver.StateUncertain, look(s).State)
}

func end(t *testing.T, s dedup.Store, c driver.Finish) {
	t.Helper()
	a := s.Finish(t.Context(), []driver.Finish{c})[0]
	require.NoError(t, a.Err)
	require.True(t, a.Written)
}

func look(s dedup.Store) dedup.Record {
	return s.Lookup(context.Background(), []driver.ID{key})[0].Record
}

func TestAsItWasShown(t *testing.T) {
	for is, change := range map[driver.State]func(context.Context, dedup.Store, Key) error{
		driver.StateSucceeded: Done, driver.StateReleased: Release,
	} {
		s := dedup.Memory(10)
		doubt(t, s, 1)
		require.NoError(t, change(t.Context(),
			s, Key{ID: key, Seen: look(s), Window: time.Hour, Hold: time.Hour}))
		assert.Equal(t, is, look(s).State)
	}
	s := dedup.Memory(10)
	doubt(t, s, 1)
	is, err := Forget(t.Context(), s, Key{ID: key, Seen: look(s), Hold: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, driver.StateReleased, is)
	assert.Equal(t, driver.StateReleased, look(s).State)
	end(t, s, func() driver.Finish {
		c := claim(t, s, 2)
		c.State = driver.StateSucceeded
		return c
	}())
	is, err = Forget(t.Context(), s, Key{ID: key, Seen: look(s), Hold: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, driver.StateAbsent, is)
	assert.Equal(t, driver.StateAbsent, look(s).State)
}

// The key changes between the read that compares it and the write. The new record stays.
func TestMovesAfterTheLook(t *testing.T) {
	resolve := func(state driver.State) func(*testing.T, dedup.Store) {
		return func(t *testing.T, s dedup.Store) {
			c := claim(t, s, 7)
			c.State, c.NotStarted = state, state == driver.StateReleased
			end(t, s, c)
		}
	}
	for name, moves := range map[string]func(*testing.T, dedup.Store){
		"resolved as done": resolve(driver.StateSucceeded),
		"released":         resolve(driver.StateReleased),
		"released and in use": func(t *testing.T, s dedup.Store) {
			resolve(driver.StateReleased)(t, s)
			claim(t, s, 8)
		},
		"in doubt anew": func(t *testing.T, s dedup.Store) {
			resolve(driver.StateReleased)(t, s)
			doubt(t, s, 9)
		},
	} {
		for way, change := range map[string]func(context.Context, dedup.Store, Key) error{
			"done": Done, "release": Release,
			"forget": func(ctx context.Context, s dedup.Store, k Key) error {
				_, err := Forget(ctx, s, k)
				return err
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				s := &between{Store: dedup.Memory(10)}
				doubt(t, s.Store, 1)
				var moved dedup.Record
				s.happens = func() { moves(t, s.Store); moved = look(s.Store) }
				require.ErrorIs(t, change(t.Context(),
					s, Key{ID: key, Seen: look(s), Window: time.Hour, Hold: time.Hour}), ErrMoved)
				assert.Equal(t, moved.State, look(s).State)
				assert.Equal(t, moved.Attempt, look(s).Attempt)
			})
		}
	}
}

// A key that is done changes while a person is asked whether to forget it.
func TestForgetComparesWhatWasShown(t *testing.T) {
	s := dedup.Memory(10)
	c := claim(t, s, 1)
	c.State = driver.StateSucceeded
	end(t, s, c)
	k := Key{ID: key, Seen: look(s), Hold: time.Hour}
	require.NoError(t, s.Forget(t.Context(), []driver.ID{key}, time.Hour)[0])
	c = claim(t, s, 2)
	c.State = driver.StateSucceeded
	end(t, s, c)
	_, err := Forget(t.Context(), s, k)
	require.ErrorIs(t, err, ErrMoved)
	assert.Equal(t, driver.StateSucceeded, look(s).State)

	lapsing := &between{Store: s}
	k.Seen = look(s)
	lapsing.happens = func() {
		require.NoError(t, s.Forget(t.Context(), []driver.ID{key}, time.Hour)[0])
		claim(t, s, 3)
	}
	_, err = Forget(t.Context(), lapsing, k)
	require.ErrorIs(t, err, ErrMoved)
	assert.Equal(t, driver.StateInProgress, look(s).State)
}
