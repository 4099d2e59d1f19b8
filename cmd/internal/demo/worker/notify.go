package worker

import (
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup"
)

// Hook names a hook of dedup.Observer.
type Hook string

// The hooks that a worker forwards. The demo calls none of the others.
const (
	HookClaimed    Hook = "claimed"
	HookEnded      Hook = "ended"
	HookUncertain  Hook = "uncertain"
	HookLeaseLost  Hook = "lease_lost"
	HookStoreError Hook = "store_error"
)

// hooks are the fields of an Observer by their names.
func hooks(o *dedup.Observer) map[Hook]*func(dedup.Event) {
	return map[Hook]*func(dedup.Event){
		HookClaimed: &o.Claimed, HookEnded: &o.Ended, HookUncertain: &o.Uncertain,
		HookLeaseLost: &o.LeaseLost, HookStoreError: &o.StoreError,
	}
}

// Observed carries a dedup.Event to the parent, where it outlives the worker.
type Observed struct {
	Hook      Hook
	Event     dedup.Event // without Err
	Err       string
	Retryable bool
}

// notify forwards an event, if the parent wants events.
func (w *worker) notify(h Hook, e dedup.Event) {
	if !w.cfg.Observe {
		return
	}
	o := Observed{Hook: h, Event: e}
	o.Event.Err = nil // an error has no JSON
	if e.Err != nil {
		o.Err, o.Retryable = e.Err.Error(), dedup.CanRetry(e.Err) || dedup.OutcomeUnknown(e.Err)
	}
	w.send(Event{Kind: HookCalled, Observed: o})
}

// observer returns an Observer that forwards its calls.
func (w *worker) observer() (o dedup.Observer) {
	if !w.cfg.Observe {
		return o
	}
	for name, hook := range hooks(&o) {
		*hook = func(e dedup.Event) { w.notify(name, e) }
	}
	return o
}

// Replay calls the hook that was called in the worker.
func (o Observed) Replay(to dedup.Observer) error {
	hook, known := hooks(&to)[o.Hook]
	if !known {
		return fmt.Errorf("unknown hook %q", o.Hook)
	}
	if *hook == nil {
		return nil
	}
	if o.Err != "" {
		o.Event.Err = errors.New(o.Err)
		if !o.Retryable {
			o.Event.Err = dedup.Permanent(o.Event.Err)
		}
	}
	(*hook)(o.Event)
	return nil
}
