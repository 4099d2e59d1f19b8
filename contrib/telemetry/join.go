package telemetry

import "github.com/onceward/onceward/dedup"

// Join returns an observer whose hooks call those of all observers, in their order. A hook that no
// observer has is nil, so that its events are not made. A hook that only one observer has is used
// directly. If a hook panics, the panic reaches the caller, and the later hooks are not called.
func Join(observers ...dedup.Observer) dedup.Observer {
	join := func(pick func(*dedup.Observer) func(dedup.Event)) func(dedup.Event) {
		var hooks []func(dedup.Event)
		for i := range observers {
			if hook := pick(&observers[i]); hook != nil {
				hooks = append(hooks, hook)
			}
		}
		switch len(hooks) {
		case 0:
			return nil
		case 1:
			return hooks[0]
		}
		return func(e dedup.Event) {
			for _, hook := range hooks {
				hook(e)
			}
		}
	}
	return dedup.Observer{
		Claimed:     join(func(o *dedup.Observer) func(dedup.Event) { return o.Claimed }),
		WouldSkip:   join(func(o *dedup.Observer) func(dedup.Event) { return o.WouldSkip }),
		Ended:       join(func(o *dedup.Observer) func(dedup.Event) { return o.Ended }),
		Uncertain:   join(func(o *dedup.Observer) func(dedup.Event) { return o.Uncertain }),
		LeaseLost:   join(func(o *dedup.Observer) func(dedup.Event) { return o.LeaseLost }),
		StoreError:  join(func(o *dedup.Observer) func(dedup.Event) { return o.StoreError }),
		FailedOpen:  join(func(o *dedup.Observer) func(dedup.Event) { return o.FailedOpen }),
		Filtered:    join(func(o *dedup.Observer) func(dedup.Event) { return o.Filtered }),
		FilterState: join(func(o *dedup.Observer) func(dedup.Event) { return o.FilterState }),
	}
}
