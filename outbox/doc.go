// Package outbox publishes messages that were recorded in the transaction of an effect. Both are
// committed or neither is, and committed messages are published.
//
//	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres})
//	...
//	err = box.InsertTx(ctx, tx, outbox.Message{ // in the transaction of the effect
//		ID: "payment-42-booked", Topic: "bookings", Key: []byte("account-7"), Payload: body,
//	})
//	err = tx.Commit()
//	box.Notify() // a relay need not wait for its next poll: see Wake-up
//
// [Do] does all of that, and records the key of the effect, so that a duplicate of it is not
// published again:
//
//	mark, err := outbox.Do(ctx, box, ledger, db, "payment-42",
//		func(ctx context.Context, tx *sql.Tx) ([]outbox.Message, error) {
//			_, err := tx.ExecContext(ctx, `UPDATE account SET ...`) // the effect
//			return []outbox.Message{{ID: "payment-42-booked", Topic: "bookings"}}, err
//		})
//
// A relay publishes them:
//
//	relay, err := outbox.NewRelay(outbox.RelayConfig{ // in this process or in any other
//		Outbox: box, DB: db, Publisher: publisher, OnPark: alarm,
//	})
//	err = relay.Run(ctx)
//
// # Guarantees
//
// A committed message is published at least once, and deleted only after the [Publisher] has
// said that it is acknowledged. Without a crash, a lost COMMIT or a publisher that could not
// tell, it is published once. After one of those it is published again, under the same id. Every
// message carries the id in a header ("onceward-id" by default), and consumers deduplicate by it
// (kafkaadapter.FromHeader). The id is the caller's, such as one derived
// from the key that the effect was marked under, or random, and stored either way.
//
// Messages of one topic and key are published in the order in which they were inserted, by
// any number of relays. A relay works on one of 16 shards at a time, chosen by a hash of the
// key, under a lock that ends with its connection. One statement, or one transaction, orders its
// messages by itself. Two transactions about one key must be ordered by the application, for
// example by the lock on the row that the messages are about. Rows are read in the order of
// their ids, which is not that of the commits, and no row is skipped for that: nothing but
// its deletion ends a row. Messages without a key have no order.
//
// A message with a NotBefore is inserted into a table of its own. A relay moves it to the others
// when its time has come, by the database's clock, and it takes its place in the order of its key
// then. Those of one key are moved in the order of their times.
//
// # Failures
//
// A message that the publisher fails keeps the later ones of its topic and key waiting, and
// no others, and is tried again with a growing, spread delay.
//
// A topic of which nothing is acknowledged holds up no other topic, however many of its messages
// wait. The relay leaves it out of its reads, in all shards, and sends one message of it each time
// its delay is over, at most RelayConfig.RetryMax. The first that is acknowledged brings the topic
// back. Each call of the publisher has messages of one topic. A call that takes far longer than
// others do continues next to them: its topic is left out until it has ended. Messages that the
// others have acknowledged are deleted meanwhile. The relay keeps the lock of the shard, so that no
// other relay publishes the same messages. RelayConfig.OnError gets a [*TopicError], and
// [Relay.Failing] lists the topics. A relay that is started again, and any other one, finds out by
// itself.
//
// A message the broker refuses for what it is ([Reject]) is parked, when it has failed
// RelayConfig.MaxAttempts times, in a table of its own, and RelayConfig.OnPark is called; see
// [Outbox.Parked] and [Outbox.Requeue]. One that a [Checker] refuses is parked at once. Messages
// that fail for another reason, such as a broker that is down, are never parked: watch
// [Outbox.Lag].
//
// A relay that cannot delete, on a read replica or without the right to, publishes nothing and
// tells RelayConfig.OnError: before its first batch of a shard, and after a turn that failed, it
// tries to. Nothing waits longer than twice RelayConfig.RetryMax, whatever the clock does.
//
// # Wake-up
//
// Relays poll, every 10 ms and rarer the longer nothing comes. [Outbox.Notify] wakes those of its
// process at once. With PostgreSQL a [Notifier] passes it on to other processes, by a NOTIFY of
// its own in a few milliseconds at most once, and outbox/pgxlisten hears it there.
//
// A transaction that stays open, such as a report's, keeps the database from removing the rows of
// messages that are published meanwhile, and reads pass over them. A relay on PostgreSQL finds out
// up to which id a shard is empty, and begins its reads there. Elsewhere it does not know that. A
// poll that finds nothing costs a tenth of the time at most. RelayConfig.OnError gets a
// [*SnapshotError] that names the transaction.
//
// # Engines
//
// PostgreSQL 12 or newer; MySQL 8.0.13 and MariaDB 10.6 or newer; SQLite 3.35 or newer. A
// relay holds a transaction open while it publishes. PostgreSQL ends it, and frees the shard, when
// the relay's machine has died and PublishTimeout and five seconds have passed. MySQL would wait
// for wait_timeout, which is eight hours. Give the relay a pool whose connections have a short
// one, such as the parameter wait_timeout=30 in the DSN, but longer than PublishTimeout. A limit
// for idle transactions must also exceed PublishTimeout. SQLite has one writer, which must not
// wait for a broker. There a relay holds a lease of PublishTimeout and five seconds, again and
// again, and a second relay stands by. It takes over when the first has stopped or the lease has
// lapsed.
package outbox
