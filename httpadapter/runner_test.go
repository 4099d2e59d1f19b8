package httpadapter_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func newDeduper(t *testing.T, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	return newDeduperOver(t, dedup.Memory(10_000), change)
}

func newDeduperOver(t *testing.T, store dedup.Store, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Namespace: "http", Window: 24 * time.Hour, LeaseTTL: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func newClaimed(t *testing.T, d *dedup.Deduper) httpadapter.Runner {
	t.Helper()
	run, err := httpadapter.Claimed(d)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func wantInputError(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	if !errors.As(err, &input) || input.Field != field {
		t.Errorf("got %v, want an InputError of %s", err, field)
	}
}

func TestClaimedRefusesWhatAnswersWithoutARecord(t *testing.T) {
	for name, d := range map[string]*dedup.Deduper{
		"nil":          nil,
		"fail open":    newDeduper(t, func(c *dedup.Config) { c.FailOpen = true }),
		"observe only": newDeduper(t, func(c *dedup.Config) { c.ObserveOnly = true }),
	} {
		t.Run(name, func(t *testing.T) {
			run, err := httpadapter.Claimed(d)
			wantInputError(t, err, "Deduper")
			if run != nil {
				t.Error("a Runner beside the error")
			}
		})
	}
}

func TestClaimedTellsWhatItKeeps(t *testing.T) {
	run := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.ResultLimit = 1000 }))
	if run.Window() != 24*time.Hour || run.ResultLimit() != 1000 {
		t.Errorf("window %v, limit %d", run.Window(), run.ResultLimit())
	}
	if limit := newClaimed(t, newDeduper(t, nil)).ResultLimit(); limit != 256<<10 {
		t.Errorf("limit is %d without one in the Config: the Deduper's default does not show", limit)
	}
	seen := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.SeenOnly = true }))
	if seen.ResultLimit() != 0 {
		t.Errorf("SeenOnly keeps nothing, limit is %d", seen.ResultLimit())
	}
}

func TestClaimedRunsOnceAndReplays(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	runs := 0
	effect := func(ctx context.Context) ([]byte, bool, error) {
		runs++
		if a, ok := dedup.FromContext(ctx); !ok || a.Key != "k" {
			t.Error("no attempt in the context of the effect")
		}
		return []byte("done"), true, nil
	}
	for i, want := range []dedup.Outcome{dedup.Acquired, dedup.Duplicate} {
		res, err := run.Run(t.Context(), "k", effect, dedup.WithScope("a"))
		if err != nil || res.Outcome != want || !bytes.Equal(res.Value, []byte("done")) {
			t.Errorf("call %d: %v %q, %v", i, res.Outcome, res.Value, err)
		}
	}
	if _, err := run.Run(t.Context(), "k", effect, dedup.WithScope("b")); err != nil || runs != 2 {
		t.Errorf("another scope: %d runs, %v", runs, err)
	}
}

func TestClaimedKeepsNothingOfAnError(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	failed := errors.New("failed")
	_, err := run.Run(t.Context(), "k", func(context.Context) ([]byte, bool, error) { return []byte("half"), false, failed })
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	res, err := run.Run(t.Context(), "k", func(context.Context) ([]byte, bool, error) { return []byte("whole"), false, nil })
	if err != nil || res.Outcome != dedup.Acquired || res.Attempt != 2 || string(res.Value) != "whole" {
		t.Errorf("the retry: %+v, %v", res, err)
	}
}

// What an operator has marked is done without a result.
func TestClaimedOfAMarkedKeyHasNoResult(t *testing.T) {
	d := newDeduper(t, nil)
	if _, err := d.Mark(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	res, err := newClaimed(t, d).Run(t.Context(), "k", func(context.Context) ([]byte, bool, error) {
		t.Error("ran")
		return []byte{1}, false, nil
	})
	if !errors.Is(err, dedup.ErrNoResult) || res.Outcome != dedup.Duplicate || res.Value != nil {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestClaimedRefusesANilEffect(t *testing.T) {
	_, err := newClaimed(t, newDeduper(t, nil)).Run(t.Context(), "k", nil)
	wantInputError(t, err, "Effect")
}
