package harness

import (
	"fmt"
	"runtime"
)

// full is the share of a processor from which on it counts as the limit: measuring, the
// kernel and other programs take the rest.
const full = 0.85

// binds says what bounds a row's rate. Redis executes commands on one thread, so that
// thread can be the limit while cores are free.
func binds(r Row) string { return bindsOn(r, runtime.NumCPU()) }

func bindsOn(r Row, cores int) string {
	client, redis, broker := r.ClientUS*r.Value/1e6, r.ServerUS*r.Value/1e6, r.BrokerUS*r.Value/1e6
	limit := "nothing is busy: it waits"
	switch {
	case redis >= full:
		limit = "the thread of Redis"
	case client+redis+broker < full*float64(cores):
	case client >= max(redis, broker):
		limit = "CPU of the client"
	case redis > broker:
		limit = "CPU of Redis"
	default:
		limit = "CPU of the broker"
	}
	return fmt.Sprintf("%s (of %d cores: client %.2f, Redis %.2f, broker %.2f)", limit, cores, client, redis, broker)
}
