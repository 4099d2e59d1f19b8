package partition

import (
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// Progress is how far a partition has come.
type Progress struct {
	flow.Progress
	// Paused is why it is paused, PausedFor how long it has been in all.
	Paused    flow.Reason
	PausedFor time.Duration
}

// Progress returns a reading.
func (p *Partition) Progress() Progress {
	return Progress{Progress: p.tracker.Progress(), Paused: p.gate.Reasons(), PausedFor: p.gate.Paused()}
}
