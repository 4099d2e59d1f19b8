// Package watermilladapter makes the handlers of a watermill Router idempotent: a message
// that arrives twice has its effect once.
//
//	once, err := watermilladapter.New(d, watermilladapter.Config{})
//	if err != nil {
//		return err
//	}
//	router.AddMiddleware(once.Middleware)
//
// A message is claimed before its handler runs and recorded after it, so a handler that fails, or
// dies, runs again. Watermill's own Deduplicator marks the message before the handler runs, and
// drops a redelivery. The level is Claimed, with its exceptions (see package dedup). If the effect
// of a handler is in a SQL database, use sqladapter's Do without this middleware.
//
// # Messages that a handler returns
//
// A Router publishes the messages of a handler after the middleware has recorded the handled
// message. After a crash in between, the next delivery would be skipped, and the messages would
// never be published. So the record keeps these messages (UUID, metadata and payload; see
// [dedup.Config].ResultLimit), and every duplicate returns them again, under the same UUIDs. So
// they are published at least once, and their readers can recognize copies by the UUID.
//
// # Errors
//
// A Router answers an error with a Nack, and the message is redelivered. A message that is in
// flight elsewhere is an error, too ([dedup.ErrInFlight]). Give the Deduper a Config.Wait, so that
// the copy waits instead of being redelivered at once. A permanent failure ([dedup.Permanent]) is
// recorded, and each redelivery gets the recorded error without a run of the handler. Put
// watermill's PoisonQueueWithFilter outside of this middleware, with [Poisoned] as its filter. Put
// a middleware that retries inside: then one claim covers all tries.
package watermilladapter
