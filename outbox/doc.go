// Package outbox publishes messages that were recorded in the transaction of an effect. Effect and
// messages are committed together or not at all, and committed messages are published.
//
//	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres})
//	...
//	err = box.InsertTx(ctx, tx, outbox.Message{ // in the transaction of the effect
//		ID: "payment-42-booked", Topic: "bookings", Key: []byte("account-7"), Payload: body,
//	})
//	err = tx.Commit()
//	box.Notify() // a relay need not wait for its next poll: see Wake-up
//
// [Do] does all of that, and records the key of the effect, so that a duplicate publishes nothing:
//
//	mark, err := outbox.Do(ctx, box, ledger, db, "payment-42",
//		func(ctx context.Context, tx *sql.Tx) ([]outbox.Message, error) {
//			_, err := tx.ExecContext(ctx, `UPDATE account SET ...`) // the effect
//			return []outbox.Message{{ID: "payment-42-booked", Topic: "bookings"}}, err
//		})
//
// A relay publishes the messages:
//
//	relay, err := outbox.NewRelay(outbox.RelayConfig{ // in this process or in any other
//		Outbox: box, DB: db, Publisher: publisher, OnPark: alarm,
//	})
//	err = relay.Run(ctx)
//
// # Guarantees
//
// A committed message is published at least once, and deleted only after the [Publisher] has said
// that it is acknowledged. It is published once, unless there is a crash, a lost COMMIT or a
// publisher that does not know the outcome. After one of those it is published again, under the
// same id. Every message carries the id in a header ("onceward-id" by default), and consumers
// deduplicate by it (kafkaadapter.FromHeader). The id is the caller's, such as one derived from the
// key that the effect was marked under, or random. It is stored in either case.
//
// Messages of one topic and key are published in the order in which they were inserted, by
// any number of relays. A relay works on one of 16 shards at a time, chosen by a hash of the key,
// under a lock that ends with its connection. One statement, or one transaction, orders its
// messages by itself. The application must order two transactions about one key, for example by the
// lock on the row that the messages are about. Relays read rows in the order of their ids, which is
// not the order of the commits. No row is skipped because of that: relays look for every row until
// it is deleted. Messages without a key have no order.
//
// A message with a NotBefore is inserted into a separate table. When its time has come, by the
// database's clock, a relay moves it to the other messages, and there it takes its place in the
// order of its key. Messages of one key are moved in the order of their times.
//
// # Failures
//
// When a message fails, only the later messages of its topic and key wait for it. The relay tries
// it again with a growing, spread delay.
//
// A topic of which no message is acknowledged holds up no other topic, however many of its messages
// wait. The relay leaves the topic out of its reads, in all shards, and sends one message of it
// whenever a delay of at most RelayConfig.RetryMax is over. The first acknowledged one brings the
// topic back. Each call of the publisher has messages of one topic. When a call takes far longer
// than others, it continues next to them, and its topic is left out until the call has ended. The
// relay deletes messages that other calls have acknowledged meanwhile, and keeps the lock of the
// shard, so that no other relay publishes the same messages. RelayConfig.OnError gets a
// [*TopicError], and [Relay.Failing] lists the topics. After a restart a relay finds out again
// which topics fail, and so does any other relay.
//
// When the broker refuses a message for what it is ([Reject]), the relay parks it after
// RelayConfig.MaxAttempts failures: it moves the message to a separate table and calls
// RelayConfig.OnPark; see [Outbox.Parked] and [Outbox.Requeue]. A message that a [Checker] refuses
// is parked at once. Messages that fail for another reason, such as a broker that is down, are
// never parked: watch [Outbox.Lag].
//
// A relay that cannot delete, on a read replica or without the right, publishes nothing and calls
// RelayConfig.OnError: it tries a delete before its first batch of a shard, and after a turn that
// failed. No message waits longer than twice RelayConfig.RetryMax, whatever the clock does.
//
// # Wake-up
//
// Relays poll every 10 ms, and less often the longer no message comes. [Outbox.Notify] wakes the
// relays of its process at once. With PostgreSQL a [Notifier] passes this on to other processes,
// with a separate NOTIFY at most once in a few milliseconds, and outbox/pgxlisten receives it
// there.
//
// A transaction that stays open, such as a report's, keeps the database from removing the rows of
// messages that are published meanwhile, and every read passes over these rows. A relay on
// PostgreSQL finds out up to which id a shard is empty, and begins its reads there; on other
// databases it cannot. Polls that find nothing take at most a tenth of the time.
// RelayConfig.OnError gets a [*SnapshotError] that names the transaction.
//
// # Engines
//
// PostgreSQL 12 or newer; MySQL 8.0.13 and MariaDB 10.6 or newer; SQLite 3.35 or newer. A relay
// holds a transaction open while it publishes. When the relay's machine dies, PostgreSQL ends that
// transaction after PublishTimeout and five seconds, which frees the shard. MySQL would wait for
// wait_timeout, which is eight hours. Give the relay a pool whose connections have a short
// wait_timeout, but one longer than PublishTimeout, such as the parameter wait_timeout=30 in the
// DSN. A limit for idle transactions must also exceed PublishTimeout. SQLite has one writer, which
// must not wait for a broker. There a relay takes a lease of PublishTimeout and five seconds, again
// and again, and a second relay stands by. The second takes over when the first has stopped or the
// lease has lapsed.
package outbox
