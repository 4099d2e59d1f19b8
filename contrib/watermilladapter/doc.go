// Package watermilladapter makes the handlers of a watermill Router idempotent: a message
// that arrives twice has its effect once.
//
//	once, err := watermilladapter.New(d, watermilladapter.Config{})
//	if err != nil {
//		return err
//	}
//	router.AddMiddleware(once.Middleware)
//
// A message is claimed before its handler runs and recorded after it, so a handler that
// fails, or dies, runs again. Watermill's own Deduplicator marks before the handler, and
// drops the redelivery. The level is Claimed, with its exceptions (see package dedup). If the
// effect of a handler is in a SQL database, use sqladapter's Do without this middleware.
//
// # Messages that a handler returns
//
// A Router publishes the messages of a handler after the middleware has recorded it. If a crash
// came in between, the next delivery would be skipped, and the messages would never be
// published. So the record keeps them (UUID, metadata and payload; see
// dedup.Config.ResultLimit), and every duplicate returns them again, under the same UUIDs.
// They are published at least once, and their readers can recognize copies by the UUID.
//
// # Errors
//
// A Router answers an error with a Nack, and the message is redelivered. In flight elsewhere
// (dedup.ErrInFlight) is an error: give the Deduper a Config.Wait, so that the copy waits
// instead of being redelivered at once. A permanent failure (dedup.Permanent) is recorded, and
// each redelivery gets it without running: put watermill's PoisonQueueWithFilter outside of
// this middleware, with [Poisoned] as its filter. Put a middleware that retries inside: then
// one claim covers all tries.
package watermilladapter
