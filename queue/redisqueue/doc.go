// Package redisqueue handles the entries of a Redis stream as a consumer of a group, through
// package queue: the effect of every entry happens once, and an entry is acknowledged only after
// its effect and its record have landed. It needs Redis 7 or Valkey.
//
//	err := redisqueue.Consume(ctx, client, queue.Config{Deduper: d, Handler: bill},
//		redisqueue.Options{Stream: "orders", Group: "billing", Consumer: podName})
//
// The group must exist: XGROUP CREATE orders billing 0 MKSTREAM.
//
// # Acknowledgements
//
// Done and parked are XACK. While a handler works the entry is claimed again by its own consumer
// each quarter of Options.AckWait, which starts its idle time anew. An entry that is idle for
// AckWait, because its process is dead, is taken by any consumer of the group, by XAUTOCLAIM. Not
// done sets the idle time so that this comes about when the entry is to be handled again, at
// AckWait at the latest.
//
// An entry that is trimmed from the stream before it is acknowledged is lost. The source returns an
// error about it, which queue.Consumer.Run logs. Let MAXLEN be far beyond what waits.
//
// # Ids
//
// The id is the field Options.IDField, which tells copies that a producer sent. An entry without it
// has its entry id, which tells redeliveries only. The scope is "group/stream".
//
// # Order
//
// A group keeps no order.
package redisqueue
