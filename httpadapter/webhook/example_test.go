package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// A payment provider sends an event three times, and an attacker forges one.
func Example() {
	// in production a store of package redisadapter
	d, err := dedup.New(dedup.Memory(10_000), dedup.Config{
		Namespace: "shop", Window: webhook.DefaultWindow, LeaseTTL: 30 * time.Second,
		SeenOnly: true,
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	run, err := httpadapter.Claimed(d)
	if err != nil {
		panic(err)
	}
	// from the provider's page, for this endpoint
	const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	provider, err := webhook.StandardWebhooks(secret)
	if err != nil {
		panic(err)
	}
	hook, err := webhook.New(run, provider, func(_ context.Context, d *webhook.Delivery) error {
		var invoice struct{ Amount int }
		if err := json.Unmarshal(d.Body, &invoice); err != nil {
			return dedup.Permanent(err) // another delivery of it would fail, too
		}
		fmt.Println(d.Type, d.ID, "books", invoice.Amount)
		return nil
	}, webhook.Config{Endpoint: "billing", Handles: func(t string) bool {
		return strings.HasPrefix(t, "invoice.")
	}})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /hooks/billing", hook)

	deliver := func(id, body, secret string) {
		header, err := webhook.Sign(id, time.Now(), []byte(body), secret) // as the provider does it
		if err != nil {
			panic(err)
		}
		r, w := httptest.NewRequest(http.MethodPost, "/hooks/billing", strings.NewReader(body)),
			httptest.NewRecorder()
		r.Header = header
		mux.ServeHTTP(w, r)
		fmt.Println(id, w.Code)
	}
	for range 3 {
		deliver("msg_1", `{"type":"invoice.paid","amount":100}`, secret)
	}
	deliver("msg_2", `{"type":"customer.created"}`, secret)
	deliver("msg_3", `{"type":"invoice.paid","amount":999}`,
		"whsec_Z3Vlc3NlZCBieSBzb21lYm9keSBlbHNl")
	// Output:
	// invoice.paid msg_1 books 100
	// msg_1 200
	// msg_1 200
	// msg_1 200
	// msg_2 200
	// msg_3 401
}
