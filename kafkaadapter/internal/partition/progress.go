package partition

import (
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// Progress is how far a partition has come.
type Progress struct {
	flow.Progress
	// Paused is why it is paused, PausedFor how long it has been in all.
	Paused flow.Reason
	// NotOwned: nothing runs before the partition is owned. It is false without Config.Own.
	NotOwned  bool
	PausedFor time.Duration
}

// Progress returns a reading.
func (p *Partition) Progress() Progress {
	return Progress{Progress: p.tracker.Progress(), Paused: p.gate.Reasons(),
		NotOwned: p.cfg.Own != nil && p.owner.now() == nil, PausedFor: p.gate.Paused()}
}
