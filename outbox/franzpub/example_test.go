package franzpub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
)

// A relay calls Publish; here it is called by hand.
func ExampleNew() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("KAFKA_BROKERS")))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	publisher, err := franzpub.New(client)
	if err != nil {
		log.Fatal(err) // names the option that would lose messages, or their order
	}
	// outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: publisher, OnPark: alarm})
	sent := publisher.Publish(context.Background(),
		[]outbox.Message{{Topic: "bookings", Key: []byte("account-1"), Payload: []byte("100")}})
	fmt.Println(errors.Join(sent...)) // an error for each message that is not acknowledged
	// It prints:
	// <nil>
}
