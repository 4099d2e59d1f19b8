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
// fails, or dies, is run again; watermill's own Deduplicator marks before the handler, and
// drops the redelivery. The levels and their exceptions are those of package dedup
// (level Claimed); a handler whose effect is in a SQL database does better with
// sqladapter's Do and without this middleware.
//
// # Messages that a handler returns
//
// A Router publishes what a handler returns after the middleware is through, and the record
// would hide from the next delivery what a crash in between has kept from being published.
// So the returned messages are stored with the record (UUID, metadata and payload; see
// dedup.Config.ResultLimit), and every duplicate returns them again, under the same UUIDs:
// they are published at least once, and whoever reads them can tell copies apart by the UUID.
//
// # What becomes of errors
//
// A Router answers an error with a Nack, and the message comes again. In flight elsewhere
// (dedup.ErrInFlight) is an error: give the Deduper a Config.Wait, so that the copy waits and
// does not go round. A failure for good (dedup.Permanent) is recorded, and each redelivery
// gets it without running: put watermill's PoisonQueueWithFilter outside of this middleware,
// with [Poisoned] as its filter. A middleware that retries belongs inside: the claim is then
// kept over all tries.
package watermilladapter
