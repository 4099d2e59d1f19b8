package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		w := &worker{cfg: Config{Observe: true}, send: sender(&line)}
		call(t, w.observer(), hook, event)
		var e Event
		require.NoError(t, json.Unmarshal(line.Bytes(), &e), "%v: %v", hook, line.Bytes())
		require.Equal(t, HookCalled, e.Kind, "%v: %v", hook, line.Bytes())
		told := make(map[Hook]dedup.Event)
		require.NoError(t, e.Observed.Replay(recorder(told)))
		got, ok := told[hook]
		assert.True(t, ok, "%s: told %v", hook, told)
		assert.Len(t, told, 1, "%s: told %v", hook, told)
		assert.Equal(t, mayPass(event.Err), mayPass(got.Err), "%s: error %v, want what %v is",
			hook, got.Err, event.Err)
		assert.Equal(t, (event.Err == nil), (got.Err == nil), "%s: error %v, want what %v is",
			hook, got.Err, event.Err)
		got.Err, event.Err = nil, nil
		assert.Equal(t, event, got, hook)
		err := e.Observed.Replay(dedup.Observer{})
		assert.NoError(t, err, "%s, and nobody wants to know: %v", hook, err)
	}
	assert.Error(t, Observed{Hook: "other"}.Replay(dedup.Observer{}),
		"an unknown hook is no error")
}

// TestTellsNobody: if nobody looks, no event is written.
func TestTellsNobody(t *testing.T) {
	w := &worker{send: func(e Event) { t.Errorf("%+v", e) }}
	w.notify(HookClaimed, dedup.Event{Err: errors.New("")})
	assert.True(t, reflect.ValueOf(w.observer()).IsZero())
}

func mayPass(err error) bool { return dedup.CanRetry(err) || dedup.OutcomeUnknown(err) }

func call(t *testing.T, o dedup.Observer, h Hook, e dedup.Event) {
	t.Helper()
	hooks := map[Hook]func(dedup.Event){
		HookClaimed: o.Claimed, HookEnded: o.Ended, HookUncertain: o.Uncertain,
		HookLeaseLost: o.LeaseLost, HookStoreError: o.StoreError,
	}
	require.NotNil(t, hooks[h], "no hook %s", h)
	hooks[h](e)
}

func recorder(told map[Hook]dedup.Event) dedup.Observer {
	record := func(h Hook) func(dedup.Event) { return func(e dedup.Event) { told[h] = e } }
	return dedup.Observer{
		Claimed: record(HookClaimed), Ended: record(HookEnded), Uncertain: record(HookUncertain),
		LeaseLost: record(HookLeaseLost), StoreError: record(HookStoreError),
	}
}
