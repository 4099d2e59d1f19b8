package demo

import "github.com/onceward/onceward/cmd/internal/demo/worker"

// act is something that the supervisor does to the workers.
type act uint8

const (
	crashing act = iota // the worker of slot is killed at point, and started again
	joining             // another worker joins the group
	leaving             // that worker leaves the group
)

// step is an act and the time of its beginning: when this share of the ids has had its effect.
type step struct {
	share float64
	act   act
	slot  string
	point worker.Point
}

// extra is the worker that joins and leaves.
const extra = "w3"

// starters are the workers that run from the beginning.
var starters = []string{"w1", "w2"}

// schedule plans a run. Each step waits until the one before is over. Very short streams have fewer
// crashes.
func schedule(unique int) []step {
	full := []step{
		{0.08, crashing, "w1", worker.BeforeEffect},
		{0.20, joining, extra, ""},
		{0.30, crashing, "w2", worker.AfterEffect},
		{0.42, leaving, extra, ""},
		{0.52, crashing, "w2", worker.BeforeEffect},
		{0.70, crashing, "w1", worker.AfterEffect},
	}
	switch {
	case unique < 20:
		return nil
	case unique < 100:
		return full[:4]
	}
	return full
}
