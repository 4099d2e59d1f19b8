package rabbitpub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/rabbitpub"
)

// A relay calls Publish; here it is called by hand. The queue "bookings" must exist.
func ExampleNew() {
	publisher, err := rabbitpub.New(rabbitpub.Config{
		Dial: func() (*amqp.Connection, error) { return amqp.Dial(os.Getenv("AMQP_URL")) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = publisher.Close() }()
	// outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: publisher, OnPark: alarm})
	sent := publisher.Publish(context.Background(), []outbox.Message{
		{ID: "booked-1", Topic: "bookings", Key: []byte("account-1"), Payload: []byte("100")}})
	fmt.Println(errors.Join(sent...)) // an error for each message that is not confirmed
	// It prints:
	// <nil>
}
