package txn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/kafkaadapter/txn"
)

// invoice has no effect but the messages that it returns.
func invoice(_ context.Context, m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
	var order struct{ Customer, Pence int }
	if err := json.Unmarshal(m.Value, &order); err != nil {
		return nil, dedup.Permanent(err) // it will never be JSON
	}
	return []*sarama.ProducerMessage{{
		Topic: "invoices",
		Key:   sarama.StringEncoder(fmt.Sprint(order.Customer)),
		Value: sarama.StringEncoder(fmt.Sprintf("£%d.%02d", order.Pence/100, order.Pence%100)),
	}}, nil
}

// Orders come in and invoices go out, one for each, until the process is told to end.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	brokers := []string{"localhost:9092"}
	cfg := kafkasarama.SafeConfig(nil)
	p, err := txn.New(txn.Config{
		Brokers: brokers,
		Client:  cfg,
		Group:   "invoicing",
		Handler: txn.PerMessage(invoice),
		DeadLetter: func(m *sarama.ConsumerMessage, reason error) *sarama.ProducerMessage {
			return &sarama.ProducerMessage{
				Topic: "orders.dead", Key: sarama.ByteEncoder(m.Key),
				Value: sarama.ByteEncoder(m.Value),
				Headers: []sarama.RecordHeader{{Key: []byte("reason"),
					Value: []byte(reason.Error())}},
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.CheckConfig(cfg); err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup(brokers, "invoicing", cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = group.Close() }()
	if err := p.Run(ctx, group, []string{"orders"}); err != nil {
		log.Fatal(err)
	}
}

// A handler is a function of its batch, and is tested as one.
func ExamplePerMessage() {
	handle := txn.PerMessage(invoice)
	out, err := handle(context.Background(), []*sarama.ConsumerMessage{
		{Value: []byte(`{"Customer": 7, "Pence": 1250}`)},
		{Value: []byte(`{"Customer": 8, "Pence": 99}`)},
	})
	for _, m := range out {
		fmt.Println(m.Topic, m.Key, m.Value)
	}
	fmt.Println(err)
	_, err = handle(context.Background(), []*sarama.ConsumerMessage{{Value: []byte(`<order/>`)}})
	fmt.Println(dedup.IsPermanent(err))
	// Output:
	// invoices 7 £12.50
	// invoices 8 £0.99
	// <nil>
	// true
}

// Settings under which messages would be lost or doubled are refused by name.
func ExampleProcessor_CheckConfig() {
	cfg := kafkasarama.SafeConfig(nil)
	p, err := txn.New(txn.Config{Brokers: []string{"localhost:9092"}, Client: cfg,
		Group: "invoicing", Handler: txn.PerMessage(invoice)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.CheckConfig(cfg))
	cfg.Consumer.Group.ResetInvalidOffsets = true
	fmt.Println(p.CheckConfig(cfg))
	// Output:
	// <nil>
	// dedup: sarama.Config.Consumer.Group.ResetInvalidOffsets is on: a partition would start elsewhere than at its committed offset, which says what is processed
}
