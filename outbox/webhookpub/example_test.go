package webhookpub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/webhookpub"
)

// A relay calls Publish; here it is called by hand.
func ExampleNew() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Webhook-Id"), r.Header.Get("Content-Type"))
	}))
	defer receiver.Close()
	publisher, err := webhookpub.New(webhookpub.Config{
		Endpoints: func(_ context.Context, _ string) ([]webhookpub.Endpoint, error) {
			return []webhookpub.Endpoint{{
				URL:     receiver.URL,
				Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, // of it alone
			}}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: publisher, OnPark: alarm})
	sent := publisher.Publish(context.Background(), []outbox.Message{
		{ID: "booked-1", Topic: "customer-7", Payload: []byte(`{"type":"booked"}`)}})
	fmt.Println(errors.Join(sent...)) // an error for each message that is not acknowledged
	// Output:
	// booked-1 application/json
	// <nil>
}
