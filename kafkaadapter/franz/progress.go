package franz

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// Progress is how far a partition of this member has come, for gauges and alerts.
type Progress struct {
	Topic     string
	Partition int32
	// Received is the offset received last, -1 before the first message.
	Received int64
	// Watermark is the next offset to commit: every message received below it is done or
	// parked. -1 before there is one.
	Watermark int64
	// Lag is how many offsets the log has beyond the watermark, as of the last fetch.
	// Offsets have gaps, and a reader of committed transactions stays behind for ever by
	// the markers at the end: alert on Age.
	Lag int64
	// InFlight messages have been received and are held: they are not finished, or wait
	// for one below them that is not. Config.HighWater bounds it.
	InFlight int
	// Unfinished is how many of those are not finished.
	Unfinished int
	// Oldest is the offset that holds the watermark, -1 if there is none.
	Oldest int64
	// Age is how long ago Oldest was received: the watermark has stood still since, and a
	// crash now delivers everything after it again. Zero when there is none.
	Age time.Duration
	// Backlogged and StoreDown are why the partition is paused: too much in flight, or a
	// store that does not answer. PausedFor is how long it was paused in all.
	Backlogged, StoreDown bool
	PausedFor             time.Duration
	// NotOwned: with Config.Own, nothing of the partition runs until it is owned. It is paused
	// once Own has failed, or what was owned was lost.
	NotOwned bool
}

// Progress returns a reading of every partition that this member has, in order. It costs a
// few locks a partition, and is safe at any time but inside Observer.Paused, which is called
// under one of them.
func (c *Consumer) Progress() []Progress {
	s := c.session.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	have := slices.Collect(maps.Values(s.assigned))
	s.mu.Unlock()
	all := make([]Progress, len(have))
	for i, a := range have {
		all[i] = a.progress()
	}
	slices.SortFunc(all, func(x, y Progress) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return all
}

func (a *assigned) progress() Progress {
	at := a.p.Progress()
	out := Progress{
		Topic: a.at.topic, Partition: a.at.partition,
		Received: at.Received, Watermark: at.Watermark, InFlight: at.Held,
		Unfinished: at.Unfinished, Oldest: at.Oldest, Age: at.Age,
		Backlogged: at.Paused&flow.Backlog != 0, StoreDown: at.Paused&flow.StoreDown != 0,
		PausedFor: at.PausedFor, NotOwned: at.NotOwned,
	}
	from := at.Watermark
	if from < 0 {
		from = at.Oldest // the first one: nothing is finished
	}
	if from >= 0 {
		out.Lag = max(a.high.Load()-from, 0)
	}
	return out
}
