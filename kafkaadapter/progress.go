package kafkaadapter

import "time"

// Progress is how far a partition of this member has come, for gauges and alerts.
type Progress struct {
	Topic     string
	Partition int32
	// Received is the offset received last, -1 before the first message.
	Received int64
	// Watermark is the next offset to commit: every message received below it is done or parked.
	// -1 before there is one.
	Watermark int64
	// Lag is how many offsets the log has beyond the watermark, as of the last fetch. Offsets
	// have gaps, and the markers of transactions at the end are never read: alert on Age.
	Lag int64
	// InFlight is how many received messages are held: they are not finished, or wait for an
	// unfinished one with a lower offset. Tuning.HighWater bounds it.
	InFlight int
	// Unfinished is how many of the messages in flight are not finished.
	Unfinished int
	// Oldest is the offset at which the watermark waits, -1 if there is none.
	Oldest int64
	// Age is how long ago Oldest was received: the watermark has not moved since, and a crash now
	// delivers everything after it again. Zero when there is none.
	Age time.Duration
	// Backlogged and StoreDown say why the partition is paused: too much is in flight, or the store
	// does not answer. PausedFor is how long it was paused in total.
	Backlogged, StoreDown bool
	PausedFor             time.Duration
	// NotOwned: with Config.Own, nothing of the partition runs until it is owned. It is paused
	// after Acquire has failed, or after the ownership was lost.
	NotOwned bool
}
