package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onceward/onceward/dedup"
)

// webhookStatus returns the status for the sender. A 2xx ends its retries, so only an event that is
// done, or will never be done, gets one.
func webhookStatus(err error) int {
	var input *dedup.InputError
	switch {
	case dedup.CanAck(err): // a handler that returns nothing has no value to miss
		return http.StatusOK
	case errors.Is(err, dedup.ErrInFlight):
		return http.StatusConflict
	case errors.Is(err, dedup.ErrMismatch):
		return http.StatusUnprocessableEntity
	case errors.As(err, &input):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// A webhook event is done, or refused, or the sender has to send it again.
func ExampleDo_webhook() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	hook := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, err = dedup.Do(r.Context(), d, r.Header.Get("Webhook-Id"),
			func(context.Context) (struct{}, error) {
				switch string(body) {
				case "decline":
					return struct{}{}, dedup.Permanent(errors.New("card declined"))
				case "outage":
					return struct{}{}, errors.New("bank is down")
				}
				fmt.Println("charging")
				return struct{}{}, nil
			}, dedup.WithFingerprint(body))
		status := webhookStatus(err)
		if status == http.StatusConflict {
			w.Header().Set("Retry-After", "5")
		}
		w.WriteHeader(status)
	})
	for _, send := range []struct{ id, body string }{
		{"evt_1", "charge"}, {"evt_1", "charge"}, {"evt_1", "another"},
		{"evt_2", "decline"}, {"evt_2", "decline"}, {"evt_3", "outage"}, {"", "charge"},
	} {
		r, w := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(send.body)),
			httptest.NewRecorder()
		r.Header.Set("Webhook-Id", send.id)
		hook.ServeHTTP(w, r)
		fmt.Println(send.id, send.body, w.Code)
	}
	// Output:
	// charging
	// evt_1 charge 200
	// evt_1 charge 200
	// evt_1 another 422
	// evt_2 decline 200
	// evt_2 decline 200
	// evt_3 outage 503
	//  charge 400
}

// The smallest receiver that is worth having skips marked events, and marks an event after its
// effect. It claims nothing, and so has two holes. Two deliveries that arrive at once are both
// not seen and both run. And after a crash between effect and Mark the next delivery runs again.
// [Do] closes the first hole, and [MarkIrreversible], or an effect in the transaction of its record, the
// second. It also believes every sender: httpadapter/webhook verifies before it asks.
func ExampleDeduper_Mark_webhook() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()
	effect := func(id string) error { fmt.Println("charging for", id); return nil }

	hook := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Webhook-Id")
		seen, err := d.Seen(r.Context(), id) // a second delivery may ask now, too: both run
		if err == nil && !seen {
			if err = effect(id); err == nil { // a crash here: the next delivery runs again
				_, err = d.Mark(r.Context(), id)
			}
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable) // not known, or not done: send it again
		}
	})
	deliver := func(id string) int {
		r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
		r.Header.Set("Webhook-Id", id)
		hook.ServeHTTP(w, r)
		return w.Code
	}
	fmt.Println(deliver("evt_1"), deliver("evt_1"))

	// The first hole: another delivery of evt_2 comes while the effect of the first runs.
	first := effect
	effect = func(id string) error {
		effect = first
		deliver(id)
		return first(id)
	}
	fmt.Println(deliver("evt_2"))
	// Output:
	// charging for evt_1
	// 200 200
	// charging for evt_2
	// charging for evt_2
	// 200
}
