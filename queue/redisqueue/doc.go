// Package redisqueue handles the entries of a Redis stream as a consumer of a group, through
// package queue. The effect of every entry happens once, and an entry is acknowledged only after
// its effect has happened and its record is stored. It needs Redis 7 or Valkey.
//
//	err := redisqueue.Consume(ctx, client, queue.Config{Deduper: d, Handler: bill},
//		redisqueue.Options{Stream: "orders", Group: "billing", Consumer: podName})
//
// The group must exist: XGROUP CREATE orders billing 0 MKSTREAM.
//
// # Acknowledgements
//
// An entry that is done or parked gets XACK. While a handler works, its consumer claims the entry
// again in each quarter of Options.AckWait, which starts its idle time anew. Any consumer of the
// group takes over, with XAUTOCLAIM, an entry that has been idle for AckWait because its process is
// dead. For an entry that is not done, the consumer sets the idle time so that the takeover happens
// when the entry is to be handled again, after AckWait at the latest.
//
// An entry that is trimmed from the stream before it is acknowledged is lost. The source returns an
// error about it, which [queue.Consumer.Run] logs. Set MAXLEN far above the number of entries that
// wait.
//
// # Ids
//
// The id is the field Options.IDField. With it, copies that a producer sent are recognized. Without
// it the id is the entry id, with which only redeliveries are recognized. The scope is
// "group/stream".
//
// # Order
//
// A group keeps no order.
package redisqueue
