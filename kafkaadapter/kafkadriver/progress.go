package kafkadriver

import (
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

func (p *Partition) progress() kafkaadapter.Progress {
	at, paused := p.tracker.Progress(), p.backpressure.Reasons()
	out := kafkaadapter.Progress{
		Topic: p.at.Topic, Partition: p.at.Partition,
		Received: at.Received, Watermark: at.Watermark, InFlight: at.Held,
		Unfinished: at.Unfinished, Oldest: at.Oldest, Age: at.Age,
		Backlogged: paused&pipeline.Backlog != 0, StoreDown: paused&pipeline.StoreDown != 0,
		PausedFor: p.backpressure.Paused(), NotOwned: p.cfg.Own != nil && p.owner.now() == nil,
	}
	from := at.Watermark
	if from < 0 {
		from = max(p.at.Begin, at.Oldest) // nothing is finished
	}
	if from >= 0 && p.at.LogEnd != nil {
		out.Lag = max(p.at.LogEnd()-from, 0)
	}
	return out
}
