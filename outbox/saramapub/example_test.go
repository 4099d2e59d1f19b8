package saramapub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/saramapub"
)

// A relay calls Publish; here it is called by hand.
func ExampleNew() {
	client, err := sarama.NewClient([]string{os.Getenv("KAFKA_BROKERS")},
		saramapub.SafeConfig(sarama.NewConfig()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	publisher, err := saramapub.New(client)
	if err != nil {
		log.Fatal(err) // names the setting that would lose messages, or their order
	}
	defer func() { _ = publisher.Close() }()
	// outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: publisher, OnPark: alarm})
	sent := publisher.Publish(context.Background(),
		[]outbox.Message{{Topic: "bookings", Key: []byte("account-1"), Payload: []byte("100")}})
	fmt.Println(errors.Join(sent...)) // an error for each message that is not acknowledged
	// It prints:
	// <nil>
}
