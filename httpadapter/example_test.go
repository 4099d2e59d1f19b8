package httpadapter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func exampleRunner() (httpadapter.Runner, func()) {
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: 24 * time.Hour, LeaseTTL: 10 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	run, err := httpadapter.Claimed(d)
	if err != nil {
		panic(err)
	}
	return run, func() { _ = d.Close(context.Background()) }
}

// account is what authentication has found out about a request.
func account(r *http.Request) (string, error) {
	user, _, _ := r.BasicAuth()
	return user, nil
}

func examplePost(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.SetBasicAuth("acme", "secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
}

// A payment that is sent twice is made once. With chi, r.Use(m.Handler) puts the middleware
// around its routes.
func ExampleNew() {
	run, closeAll := exampleRunner()
	defer closeAll()
	m, err := httpadapter.New(run, account, httpadapter.Config{})
	if err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging")
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":1}`)
	})
	api := m.Handler(mux)

	examplePost(api, `"8e03978e"`, `{"amount":100}`)
	examplePost(api, `"8e03978e"`, `{"amount":100}`)
	// Output:
	// charging
	// 201 {"id":1} replayed: false
	// 201 {"id":1} replayed: true
}

// Stored answers are encrypted, and fingerprints are made with a secret. So they are useless to an
// attacker who reads the store.
func ExampleNew_seal() {
	run, closeAll := exampleRunner()
	defer closeAll()
	secret := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) } // from a secret manager
	m, err := httpadapter.New(run, account, httpadapter.Config{
		Seal:           [][]byte{secret(2), secret(1)}, // the first writes, all read
		FingerprintKey: &httpadapter.FingerprintKey{Version: 1, Key: secret(3)},
	})
	if err != nil {
		panic(err)
	}
	api := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "card ending in 4242")
	}))

	examplePost(api, "k1", `{"card":"4242424242424242"}`)
	examplePost(api, "k1", `{"card":"4242424242424242"}`)
	// Output:
	// 200 card ending in 4242 replayed: false
	// 200 card ending in 4242 replayed: true
}

// A client may encode its JSON again for every attempt, in another order. With Canonical both
// bodies are the same request.
func ExampleNew_canonical() {
	run, closeAll := exampleRunner()
	defer closeAll()
	m, err := httpadapter.New(run, account, httpadapter.Config{
		// For the fingerprint alone, so RFC 8785 to the letter is not needed.
		Canonical: func(contentType string, body []byte) ([]byte, error) {
			if contentType != "application/json" {
				return body, nil
			}
			var v any
			dec := json.NewDecoder(bytes.NewReader(body))
			dec.UseNumber() // else large numbers that differ would be equal
			if err := dec.Decode(&v); err != nil || dec.More() {
				return nil, errors.Join(err, errors.New("no JSON")) // compared as it is
			}
			return json.Marshal(v)
		},
	})
	if err != nil {
		panic(err)
	}
	api := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "paid")
	}))

	examplePost(api, "k1", `{"amount":100,"currency":"EUR"}`)
	examplePost(api, "k1", `{"currency":"EUR", "amount":100}`)
	// Output:
	// 200 paid replayed: false
	// 200 paid replayed: true
}
