package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
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

// Observed carries a dedup.Event to the parent, where it outlives the worker.
type Observed struct {
	Hook      Hook           `json:"hook"`
	Outcome   driver.Outcome `json:"outcome,omitempty"`
	Cause     driver.Cause   `json:"cause,omitempty"`
	Age       time.Duration  `json:"age,omitempty"`
	Attempt   int            `json:"attempt,omitempty"`
	State     driver.State   `json:"state,omitempty"`
	Cached    bool           `json:"cached,omitempty"`
	Err       string         `json:"err,omitempty"`
	Retryable bool           `json:"retryable,omitempty"`
}

// notify forwards an event, if the parent wants events.
func (w *worker) notify(h Hook, e dedup.Event) {
	if !w.cfg.Observe {
		return
	}
	o := Observed{Hook: h, Outcome: e.Outcome, Cause: e.Cause, Age: e.Age, Attempt: e.Attempt,
		State: e.State, Cached: e.Cached}
	if e.Err != nil {
		o.Err, o.Retryable = e.Err.Error(), dedup.CanRetry(e.Err) || dedup.OutcomeUnknown(e.Err)
	}
	w.send(Event{Kind: HookCalled, Observed: &o})
}

// observer returns an Observer that forwards its calls.
func (w *worker) observer() dedup.Observer {
	if !w.cfg.Observe {
		return dedup.Observer{}
	}
	hook := func(h Hook) func(dedup.Event) { return func(e dedup.Event) { w.notify(h, e) } }
	return dedup.Observer{
		Claimed: hook(HookClaimed), Ended: hook(HookEnded), Uncertain: hook(HookUncertain),
		LeaseLost: hook(HookLeaseLost), StoreError: hook(HookStoreError),
	}
}

// Replay calls the hook that was called in the worker.
func (o *Observed) Replay(to dedup.Observer) error {
	hooks := map[Hook]func(dedup.Event){
		HookClaimed: to.Claimed, HookEnded: to.Ended, HookUncertain: to.Uncertain,
		HookLeaseLost: to.LeaseLost, HookStoreError: to.StoreError,
	}
	hook, known := hooks[o.Hook]
	if !known {
		return fmt.Errorf("unknown hook %q", o.Hook)
	}
	if hook == nil {
		return nil
	}
	e := dedup.Event{Outcome: o.Outcome, Cause: o.Cause, Age: o.Age, Attempt: o.Attempt,
		State: o.State, Cached: o.Cached}
	if o.Err != "" {
		e.Err = errors.New(o.Err)
		if !o.Retryable {
			e.Err = dedup.Permanent(e.Err)
		}
	}
	hook(e)
	return nil
}
