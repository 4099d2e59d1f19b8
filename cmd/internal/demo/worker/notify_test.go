package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Each call of a hook in the worker calls the parent's hook of that name, and no other.
func TestHookCalled(t *testing.T) {
	for hook, event := range map[Hook]dedup.Event{
		HookClaimed: {Outcome: dedup.Duplicate, Cause: driver.Late, Age: time.Hour, Attempt: 2,
			Cached: true},
		HookEnded:      {State: driver.StateSucceeded, Attempt: 1},
		HookUncertain:  {Outcome: dedup.Uncertain, Attempt: 3},
		HookLeaseLost:  {Attempt: 1, Err: dedup.ErrLeaseLost},
		HookStoreError: {Err: dedup.ErrUnknown},
	} {
		var line bytes.Buffer
		w := &worker{cfg: Config{Observe: true}, send: (&sender{out: &line}).send}
		call(t, w.observer(), hook, event)
		var e Event
		if err := json.Unmarshal(line.Bytes(), &e); err != nil || e.Kind != HookCalled {
			t.Fatalf("%s: %s, %v", hook, line.Bytes(), err)
		}
		told := make(map[Hook]dedup.Event)
		if err := e.Observed.Replay(recorder(told)); err != nil {
			t.Fatal(err)
		}
		got, ok := told[hook]
		if !ok || len(told) != 1 {
			t.Errorf("%s: told %v", hook, told)
		}
		if mayPass(got.Err) != mayPass(event.Err) || (got.Err == nil) != (event.Err == nil) {
			t.Errorf("%s: error %v, want what %v is", hook, got.Err, event.Err)
		}
		if got.Err, event.Err = nil, nil; got != event {
			t.Errorf("%s: %+v, want %+v", hook, got, event)
		}
		if err := e.Observed.Replay(dedup.Observer{}); err != nil {
			t.Errorf("%s, and nobody wants to know: %v", hook, err)
		}
	}
	if err := (&Observed{Hook: "other"}).Replay(dedup.Observer{}); err == nil {
		t.Error("an unknown hook is no error")
	}
}

// TestTellsNobody: without anybody who looks no line is written.
func TestTellsNobody(t *testing.T) {
	w := &worker{send: func(e Event) { t.Errorf("%+v", e) }}
	w.notify(HookClaimed, dedup.Event{Err: errors.New("")})
	if o := w.observer(); !reflect.ValueOf(o).IsZero() {
		t.Errorf("%+v", o)
	}
}

func mayPass(err error) bool { return dedup.CanRetry(err) || dedup.OutcomeUnknown(err) }

func call(t *testing.T, o dedup.Observer, h Hook, e dedup.Event) {
	t.Helper()
	hooks := map[Hook]func(dedup.Event){
		HookClaimed: o.Claimed, HookEnded: o.Ended, HookUncertain: o.Uncertain,
		HookLeaseLost: o.LeaseLost, HookStoreError: o.StoreError,
	}
	if hooks[h] == nil {
		t.Fatalf("no hook %s", h)
	}
	hooks[h](e)
}

func recorder(told map[Hook]dedup.Event) dedup.Observer {
	record := func(h Hook) func(dedup.Event) { return func(e dedup.Event) { told[h] = e } }
	return dedup.Observer{
		Claimed: record(HookClaimed), Ended: record(HookEnded), Uncertain: record(HookUncertain),
		LeaseLost: record(HookLeaseLost), StoreError: record(HookStoreError),
	}
}
