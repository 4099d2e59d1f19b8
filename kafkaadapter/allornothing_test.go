package kafkaadapter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

func TestAllOrNothing(t *testing.T) {
	ms := func(ids ...string) (ms []*Message) {
		for _, id := range ids {
			ms = append(ms, &Message{ID: id})
		}
		return ms
	}
	var input *dedup.InputError
	for name, row := range map[string]struct {
		ids       []string
		err       error // of f
		given     []string
		noID, bad []int
		permanent bool // for the usable ones
	}{
		"done": {ids: []string{"a", "b"}, given: []string{"a", "b"}},
		"fails": {ids: []string{"a", "b"}, err: errBroken,
			given: []string{"a", "b"}},
		"without ids": {ids: []string{"", "a", "b\x00", "b", ""},
			given: []string{"a", "b"}, noID: []int{0, 4}, bad: []int{2}},
		"fails without ids": {ids: []string{"", "a", "b"}, err: errBroken,
			given: []string{"a", "b"}, noID: []int{0}},
		"nothing left": {ids: []string{"", strings.Repeat("x", 256)}, noID: []int{0},
			bad: []int{1}},
		"for good, alone": {ids: []string{"a"}, err: dedup.Permanent(errBroken),
			given: []string{"a"}, permanent: true},
		"for good, alone in effect": {ids: []string{"a", ""}, err: dedup.Permanent(errBroken),
			given: []string{"a"}, noID: []int{1}, permanent: true},
		"for good, but whose": {ids: []string{"a", "b"}, err: dedup.Permanent(errBroken),
			given: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var given []string
			errs := AllOrNothing(func(_ context.Context, ms []*Message) error {
				if given != nil {
					t.Error("called again")
				}
				given = IDs(ms)
				return row.err
			})(t.Context(), ms(row.ids...))
			if !slices.Equal(given, row.given) || len(errs) != len(row.ids) {
				t.Fatalf("given %q, %d errors; want %q, %d", given, len(errs), row.given,
					len(row.ids))
			}
			for i, err := range errs {
				switch {
				case slices.Contains(row.noID, i):
					if !errors.Is(err, ErrNoID) || !dedup.IsPermanent(err) {
						t.Errorf("message %d: %v, want a permanent ErrNoID", i, err)
					}
				case slices.Contains(row.bad, i):
					if !errors.As(err, &input) || !dedup.IsPermanent(err) {
						t.Errorf("message %d: %v, want a permanent InputError", i, err)
					}
				case (err == nil) != (row.err == nil) || dedup.IsPermanent(err) != row.permanent:
					t.Errorf("message %d: %v, permanent: %v", i, err, dedup.IsPermanent(err))
				}
			}
		})
	}
}

func TestAllOrNothingOfNothing(t *testing.T) {
	_, err := New(Config{Unclaimed: true, BatchHandler: AllOrNothing(nil)})
	var input *dedup.InputError
	if !errors.As(err, &input) || input.Field != "kafkaadapter.Config.Handler" {
		t.Errorf("New = %v", err)
	}
}

// One message that fails for good is parked, and its neighbours are not.
func TestAllOrNothingParksThePoisonAlone(t *testing.T) {
	parked := parking{}
	done := map[string]int{}
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		unclaimed(r, c)
		c.Park, c.Handler = parked.park, nil
		c.BatchHandler = AllOrNothing(func(_ context.Context, ms []*Message) error {
			if slices.Contains(IDs(ms), "id3") {
				return dedup.Permanent(errBroken)
			}
			for _, id := range IDs(ms) {
				done[id]++
			}
			return nil
		})
	}, func(r *rig) {
		r.group.add(append(ids(8), message("", "no id"))...)
		r.after(time.Minute)
		r.wantCommitted(9)
		if len(parked) != 2 || !errors.Is(parked["id3"], errBroken) ||
			!errors.Is(parked[""], ErrNoID) {
			t.Errorf("parked: %v", parked)
		}
		for id, n := range done {
			if n != 1 {
				t.Errorf("%s was done %d times", id, n)
			}
		}
		if len(done) != 7 {
			t.Errorf("%d were done, want 7: %v", len(done), done)
		}
	})
}
