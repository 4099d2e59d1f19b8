package watermilladapter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceward/onceward/contrib/watermilladapter"
	"github.com/onceward/onceward/dedup"
)

func ExampleOnce_Middleware() {
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "shop",
		Window:    24 * time.Hour,
		LeaseTTL:  30 * time.Second,
		Wait:      2 * time.Second, // a copy waits for the first one and does not go round
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close(context.Background()) }()

	once, err := watermilladapter.New(d, watermilladapter.Config{
		// a Router's handlers have a name
		Scope: func(*message.Message) (string, error) { return "charge", nil },
	})
	if err != nil {
		panic(err)
	}
	handler := once.Middleware(func(m *message.Message) ([]*message.Message, error) {
		fmt.Println("charging", string(m.Payload))
		return []*message.Message{message.NewMessage("receipt-1", []byte("paid"))}, nil
	})

	for range 2 {
		out, err := handler(message.NewMessage("order-1", []byte("10 EUR")))
		fmt.Println(out[0].UUID, string(out[0].Payload), err)
	}
	// Output:
	// charging 10 EUR
	// receipt-1 paid <nil>
	// receipt-1 paid <nil>
}
