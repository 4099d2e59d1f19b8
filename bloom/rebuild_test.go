package bloom

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRebuild(t *testing.T) { bothKinds(t, testRebuild) }

func testRebuild(t *testing.T) {
	f := mustNew(t, small(&hand{}))
	var last Progress
	calls := 0
	feed, err := f.Rebuild(t.Context(), Source{Name: "s", Seq: 3},
		func(_ context.Context, yield func(int64, [16]byte) error) error {
			wantCheck(t, "loading", f, 1, Unknown, Loading)
			for n := range uint64(progressEvery) {
				require.NoError(t, yield(-int64(n%6), id(n%100)))
			}
			return nil
		}, func(p Progress) { last, calls = p, calls+1 })
	require.NoError(t, err)
	wantCheck(t, "not open", f, 1, Unknown, Loading)
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	wantCheck(t, "fed", f, 1, Maybe, None)
	wantCheck(t, "not fed", f, 1000, ProvenNew, None)
	assert.Equal(t, 2, calls)
	assert.True(t, last.Done, "%d calls, %+v", calls, last)
	assert.EqualValues(t, progressEvery, last.Keys)
	assert.NoError(t, last.Err)
}

func TestRebuildFails(t *testing.T) {
	broken := errors.New("broken")
	ctx, cancel := context.WithCancelCause(t.Context())
	for name, scan := range map[string]func(context.Context, func(int64, [16]byte) error) error{
		"scan": func(context.Context, func(int64, [16]byte) error) error { return broken },
		"context": func(context.Context, func(int64, [16]byte) error) error {
			cancel(broken)
			return nil
		},
	} {
		f := mustNew(t, small(&hand{}))
		feed, err := f.Rebuild(ctx, Source{}, scan, nil)
		assert.Nil(t, feed, name)
		assert.ErrorIs(t, err, broken, name)
		wantCheck(t, name, f, 1, Unknown, Lost)
	}
}

// store is what Follow reads: marks with their times, some of them not visible yet.
type store struct {
	mu    sync.Mutex
	marks map[uint64]time.Time
	down  error
	ages  []time.Duration
}

func (s *store) scan(_ context.Context, age time.Duration,
	yield func([16]byte, time.Duration) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages = append(s.ages, age)
	for n, at := range s.marks {
		if old := time.Since(at); old <= age && s.down == nil {
			if err := yield(id(n), old); err != nil {
				return err
			}
		}
	}
	return s.down
}

func (s *store) mark(n uint64, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[n] = time.Now().Add(-age)
}

func (s *store) set(down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustNew(t, Options{Window: 4 * time.Hour, Rate: 1})
		s := &store{marks: map[uint64]time.Time{1: time.Now().Add(-3 * time.Hour)}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- f.Follow(ctx, source,
				FollowConfig{Every: time.Minute, Overlap: 10 * time.Minute, Scan: s.scan})
		}()
		want := func(when string, n uint64, absent bool, why string) {
			t.Helper()
			synctest.Wait()
			got, reason := f.Absent(id(n), 15*time.Minute)
			assert.Equal(t, absent, got, when)
			assert.Equal(t, why, reason, when)
		}
		want("of the window", 1, false, "maybe")
		want("never marked", 2, true, "")
		s.mark(3, 9*time.Minute) // a commit that took its time
		time.Sleep(time.Minute)
		want("committed late", 3, false, "maybe")
		s.set(errors.New("down"))
		time.Sleep(6 * time.Minute)
		want("down", 2, false, "expired")
		s.mark(4, 5*time.Minute)
		s.set(nil)
		time.Sleep(time.Minute)
		want("up again", 2, true, "")
		want("marked meanwhile", 4, false, "maybe")
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Equal(t, 6*time.Hour, s.ages[0])
		assert.Equal(t, 11*time.Minute, s.ages[1])
		assert.Equal(t, 17*time.Minute, s.ages[len(s.ages)-1])
		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestFollowEnds(t *testing.T) {
	f := mustNew(t, small(&hand{}))
	c := FollowConfig{Every: time.Hour, Overlap: time.Second}
	assert.Error(t, f.Follow(t.Context(), source, c), "without Scan")
	c.Scan = func(context.Context, time.Duration, func([16]byte, time.Duration) error) error {
		f.Begin(Source{})
		return nil
	}
	assert.ErrorIs(t, f.Follow(t.Context(), source, c), ErrDead)
}
