// Pipeline takes orders from one topic of Kafka, books each in a database, writes the booking to
// another topic, and mails a receipt for each booking:
//
//	go run ./examples/pipeline
//	go run ./examples/pipeline -brokers 127.0.0.1:9092
//	go run ./examples/pipeline -brokers 127.0.0.1:9092 -dir shop
//
// Every order is sent up to three times. A booking, its record and its message are one transaction,
// so they happen once. A mail cannot be part of a transaction: it is claimed before it goes out and
// recorded afterwards. A mail goes out again only if the process dies between the two. Without
// -brokers, Kafka runs inside this process. Without -dir, nothing is left of the shop afterwards.
// With both flags, you can kill the program and start it again: it continues where it was.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

func main() {
	brokers := flag.String("brokers", "",
		"addresses of Kafka's brokers, by commas; none: one inside of this process")
	dir := flag.String("dir", "",
		"where its database and its mails are, to go on after a crash; its name is in those of the topics; needs -brokers")
	orders := flag.Int("orders", 100, "how many orders there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *brokers, *dir, *orders); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, brokers, dir string, orders int) error {
	if dir != "" && brokers == "" {
		return errors.New("-dir needs -brokers: the Kafka inside of a process ends with it, and the shop would wait for its messages")
	}
	dir, suffix, done, err := place(dir)
	if err != nil {
		return err
	}
	defer done()
	seeds, closeKafka, err := connect(brokers)
	if err != nil {
		return err
	}
	defer closeKafka()
	s, closeShop, err := newShop(ctx, dir,
		seeds, topics{orders: "orders-" + suffix, bookings: "bookings-" + suffix})
	if err != nil {
		return err
	}
	defer closeShop()
	sent, err := s.send(ctx, orders)
	if err != nil {
		return err
	}
	if err := s.work(ctx, orders); err != nil {
		return err
	}
	booked, err := s.booked(ctx)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // interrupted
	}
	_, mails := s.mails.count()
	fmt.Printf("%d orders, sent %d times: %d bookings, %d mails\n", orders, sent, booked, mails)
	return nil
}

// place returns the directory of the shop, and the suffix of its topics' names. The function done
// removes the directory if it is temporary.
func place(dir string) (_, suffix string, done func(), err error) {
	if dir != "" {
		dir, err = filepath.Abs(dir)
		return dir, filepath.Base(dir), func() {}, errors.Join(err, os.MkdirAll(dir, 0o700))
	}
	dir, err = os.MkdirTemp("", "pipeline")
	return dir, strconv.FormatInt(time.Now().UnixMilli(), 36), func() { _ = os.RemoveAll(dir) }, err
}

type topics struct{ orders, bookings string }

// connect returns the addresses of brokers, and a function that stops those in this process.
func connect(brokers string) ([]string, func(), error) {
	if brokers != "" {
		return strings.Split(brokers, ","), func() {}, nil
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return nil, nil, err
	}
	return c.ListenAddrs(), c.Close, nil
}

// shop is the state of the program.
type shop struct {
	dir      string
	seeds    []string
	names    topics
	db       *sql.DB
	marks    *sqladapter.Ledger
	box      *outbox.Outbox
	d        *dedup.Deduper
	producer *kgo.Client
	mails    *mailbox
}

func newShop(ctx context.Context, dir string, seeds []string, names topics) (*shop, func(), error) {
	s := &shop{dir: dir, seeds: seeds, names: names}
	var closers []func()
	shut := func() {
		for i := range closers {
			closers[len(closers)-1-i]()
		}
	}
	err := s.open(ctx, func(f func()) { closers = append(closers, f) })
	if err != nil {
		shut()
		return nil, nil, err
	}
	return s, shut, nil
}

func (s *shop) open(ctx context.Context, later func(func())) (err error) {
	// The database serves one process. PostgreSQL and MySQL accept the same statements, except for
	// the placeholders.
	s.db, err = sqladapter.OpenSQLite("sqlite",
		"file:"+filepath.Join(s.dir, "shop.db")+
			"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	later(func() { _ = s.db.Close() })
	if _, err := s.db.ExecContext(ctx,
		`CREATE TABLE IF NOT EXISTS booking (order_id TEXT, amount INTEGER)`); err != nil {
		return err
	}
	if s.marks, err = sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite,
		Namespace: "booking"}); err != nil {
		return err
	}
	if err := s.marks.Migrate(ctx, s.db); err != nil {
		return err
	}
	if s.box, err = outbox.New(outbox.Config{Dialect: outbox.SQLite}); err != nil {
		return err
	}
	if err := s.box.Migrate(ctx, s.db); err != nil {
		return err
	}
	// Claims and records of mails must survive a crash: they are in a database, or in Redis
	// (redisadapter). A program that keeps running also needs store.RunSweeper.
	store, err := sqlstore.New(s.db, sqlstore.Options{Dialect: sqladapter.SQLite})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	s.d, err = dedup.New(store, dedup.Config{
		Namespace: "mail",
		Window:    8 * 24 * time.Hour, // longer than the topic keeps messages
		LeaseTTL:  5 * time.Second,    // after a crash, a mail that was claimed waits this long
		SeenOnly:  true,
	})
	if err != nil {
		return err
	}
	later(func() { _ = s.d.Close(context.WithoutCancel(ctx)) })
	s.producer, err = kgo.NewClient(kgo.SeedBrokers(s.seeds...))
	if err != nil {
		return err
	}
	later(s.producer.Close)
	if s.mails, err = openMailbox(filepath.Join(s.dir, "mails")); err != nil {
		return err
	}
	later(func() { _ = s.mails.close() })
	return s.createTopics(ctx)
}

func (s *shop) createTopics(ctx context.Context) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{s.names.orders, s.names.bookings} {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 4, -1
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, s.producer)
	if err != nil {
		return err
	}
	for _, topic := range resp.Topics {
		// a topic that exists already is used
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil &&
			!errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create %s: %w", topic.Topic, err)
		}
	}
	return nil
}

// send sends every order once, twice or three times, like a producer that does not know what has
// arrived.
func (s *shop) send(ctx context.Context, orders int) (sent int, err error) {
	for n := range orders {
		id := fmt.Sprintf("order-%03d", n)
		for range n%3 + 1 {
			sent++
			record := &kgo.Record{
				Topic: s.names.orders, Key: []byte(id), Value: []byte(strconv.Itoa(n)),
				// this is the id of the order, not of the attempt
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}},
			}
			if err := s.producer.ProduceSync(ctx, record).FirstErr(); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// work books, publishes and mails until the last mail is out, and shuts down in order.
func (s *shop) work(ctx context.Context, orders int) error {
	publisher, err := franzpub.New(s.producer)
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Outbox: s.box, DB: s.db, Publisher: publisher,
		OnPark: func(_ context.Context, p outbox.Parked) {
			slog.Error("not published", "id", p.ID, "reason", p.Reason)
		},
	})
	if err != nil {
		return err
	}
	books, mails := s.names.orders, s.names.bookings
	booking, err := kafkafranz.New("booking-of-"+books,
		kafkaadapter.Config{Unclaimed: true, Handler: s.book})
	if err != nil {
		return err
	}
	mailing, err := kafkafranz.New("mailing-of-"+mails, kafkaadapter.Config{Deduper: s.d,
		Handler: s.mail, ID: kafkaadapter.FromHeader(outbox.DefaultIDHeader)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 3)
	go func() { ended <- relay.Run(ctx) }()
	go func() { ended <- booking.Run(ctx, s.consume(books)...) }()
	go func() { ended <- mailing.Run(ctx, s.consume(mails)...) }()
	select {
	case <-s.mails.reached(orders):
	case <-ctx.Done():
	case err := <-ended: // none of them ends by itself
		ended <- err
	}
	cancel()
	return errors.Join(<-ended, <-ended, <-ended)
}

// consume returns the options of a consumer of a topic.
func (s *shop) consume(topic string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(s.seeds...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// after a crash, the group waits this long for the dead member (default: 45 s)
		kgo.SessionTimeout(10 * time.Second),
	}
}

// book is level Atomic: the booking, its record and its message are committed together or not at
// all.
func (s *shop) book(ctx context.Context, m *kafkaadapter.Message) error {
	_, err := s.marks.Do(ctx, s.db, m.ID, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO booking (order_id, amount) VALUES (?, ?)`,
			m.ID, string(m.Value)); err != nil {
			return err
		}
		return s.box.InsertTx(ctx, tx, outbox.Message{
			ID: "booked:" + m.ID, Topic: s.names.bookings, Key: m.Key, Payload: m.Value,
		})
	}, dedup.WithScope(m.Scope))
	if err == nil {
		s.box.Notify() // the relay need not wait for its next poll
	}
	return err
}

// mail is level Claimed: one process at a time runs it, and no process runs it once it is recorded.
func (s *shop) mail(_ context.Context, m *kafkaadapter.Message) error {
	return s.mails.send(string(m.Key))
}

// booked returns how many bookings there are.
func (s *shop) booked(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM booking`).Scan(&n)
	return n, err
}
