package kafkasarama_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

var brokers = []string{"localhost:9092"}

func newDeduper() *dedup.Deduper {
	d, err := dedup.New(dedup.Memory(1<<20), // redisadapter.New in production
		dedup.Config{Namespace: "payments", Window: 8 * 24 * time.Hour, LeaseTTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	return d
}

func charge(context.Context, *kafkaadapter.Message) error { return nil }

// A consumer that charges every order once, until it is told to end.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := kafkasarama.Consume(ctx, brokers, "payments", []string{"orders"}, nil,
		kafkaadapter.Config{Deduper: newDeduper(), Handler: charge})
	if err != nil {
		log.Fatal(err)
	}
}

// A client and a consumer group that exist already. The client is not the group's: commits would
// wait for its fetches.
func ExampleNew() {
	cfg := kafkasarama.SafeConfig(nil)
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	c, err := kafkasarama.New(client, "payments",
		kafkaadapter.Config{Deduper: newDeduper(), Handler: charge})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.CheckConfig(cfg); err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup(brokers, "payments", cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = group.Close() }()
	if err := c.Run(context.Background(), group, []string{"orders"}); err != nil {
		log.Fatal(err)
	}
}

// A handler that exists already sees only messages that were won, and its marks are recorded before
// the group gets them.
func ExampleWrap() {
	var existing sarama.ConsumerGroupHandler // marks a message after its effect
	handler, err := kafkasarama.Wrap("payments", existing,
		kafkaadapter.Config{Deduper: newDeduper()})
	if err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup(brokers, "payments", sarama.NewConfig())
	if err != nil {
		log.Fatal(err)
	}
	for ctx := context.Background(); ctx.Err() == nil; {
		if err := group.Consume(ctx, []string{"orders"}, handler); err != nil {
			log.Print(err)
		}
	}
}

// Messages that cannot be processed go to a topic of their own.
func ExampleProducer() {
	cfg := sarama.NewConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	if err := kafkasarama.CheckProducer(cfg); err != nil {
		log.Fatal(err)
	}
	letters, err := sarama.NewSyncProducer(brokers, cfg)
	if err != nil {
		log.Fatal(err)
	}
	producer, err := kafkasarama.Producer(letters)
	if err != nil {
		log.Fatal(err)
	}
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: producer,
		Topic:    func(m *kafkaadapter.Message) string { return m.Topic + ".dead" },
	})
	if err != nil {
		log.Fatal(err)
	}
	err = kafkasarama.Consume(context.Background(), brokers, "payments", []string{"orders"}, nil,
		kafkaadapter.Config{Deduper: newDeduper(), Handler: charge, Park: park})
	if err != nil {
		log.Fatal(err)
	}
}

// Whether a message may be redelivered after its record is forgotten. Producers of this topic set
// no ids, so its messages are told by their positions.
func ExampleRetentions() {
	client, err := sarama.NewClient(brokers, kafkasarama.SafeConfig(nil))
	if err != nil {
		log.Fatal(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		log.Fatal(err)
	}
	keeps, err := kafkasarama.Retentions(admin, "orders")
	if err != nil {
		log.Fatal(err)
	}
	behind, err := kafkasarama.Lags(client, "payments", "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range kafkaadapter.CheckWindow(8*24*time.Hour, keeps, behind) {
		log.Print(e)
	}
	err = kafkasarama.Consume(context.Background(), brokers, "payments", []string{"orders"}, nil,
		kafkaadapter.Config{Deduper: newDeduper(), Handler: charge, Positions: true})
	if err != nil {
		log.Fatal(err)
	}
}
