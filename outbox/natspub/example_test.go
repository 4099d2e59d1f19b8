package natspub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/natspub"
)

// A relay calls Publish; here it is called by hand.
func ExampleNew() {
	conn, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := natspub.New(js)
	if err != nil {
		log.Fatal(err) // names the option with which nothing would be published after an outage
	}
	// outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: publisher, OnPark: alarm})
	sent := publisher.Publish(context.Background(), []outbox.Message{
		{ID: "booked-1", Topic: "bookings", Key: []byte("account-1"), Payload: []byte("100")}})
	fmt.Println(errors.Join(sent...)) // an error for each message that is not acknowledged
	// It prints:
	// <nil>
}
