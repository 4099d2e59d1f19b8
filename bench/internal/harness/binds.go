package harness

import "fmt"

// full is the share of a processor from which on it counts as the limit: measuring and the
// kernel take the rest.
const full = 0.85

// binds says what bounds a row's rate on a machine of so many cores. Redis executes commands
// on one thread, so that thread can be the limit while cores are free.
func binds(r Row, cores int) string {
	cpu := func(each float64) float64 { return each * r.Value / 1e6 }
	client, redis, broker := cpu(r.ClientUS), cpu(r.ServerUS), cpu(r.BrokerUS)
	ours := client + redis + broker
	others := max(0, cpu(r.BusyUS)-ours)
	limit := "no processor is full, it waits in part"
	switch {
	case redis >= full:
		limit = "the thread of Redis"
	case ours+others < full*float64(cores):
	case client >= max(redis, broker):
		limit = "CPU of the client"
	case redis > broker:
		limit = "CPU of Redis"
	default:
		limit = "CPU of the broker"
	}
	return fmt.Sprintf("%s (of %d cores: client %.2f, Redis %.2f, broker %.2f, other programs %.2f)", limit, cores, client, redis, broker, others)
}
