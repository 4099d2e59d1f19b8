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

// webhookStatus is what to answer the sender: 2xx ends its retries, so only what is done,
// or will never be, gets one.
func webhookStatus(err error) int {
	var input *dedup.InputError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, dedup.ErrInFlight):
		return http.StatusConflict
	case errors.Is(err, dedup.ErrMismatch):
		return http.StatusUnprocessableEntity
	case errors.As(err, &input):
		return http.StatusBadRequest
	case dedup.IsPermanent(err) && !errors.Is(err, dedup.ErrLeaseLost):
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// A webhook is done, refused, or to be sent again.
func ExampleDo_webhook() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	hook := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, err = dedup.Do(r.Context(), d, r.Header.Get("Webhook-Id"), func(context.Context) (struct{}, error) {
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
		r, w := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(send.body)), httptest.NewRecorder()
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
