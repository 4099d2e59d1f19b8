// Command claimed keeps claims and records in Redis, and has its effect at another service.
package main

import (
	"context"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/redisadapter"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("TEST_REDIS")})
	store, err := redisadapter.New(context.Background(), client, redisadapter.Options{
		Prefix: os.Getenv("TEST_PREFIX"), OnFinding: func(preflight.Finding) {}})
	check(err)
	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: time.Hour,
		LeaseTTL: 500 * time.Millisecond})
	check(err)
	run, err := httpadapter.Claimed(d)
	check(err)
	m, err := httpadapter.New(run, httpadapter.Unscoped, httpadapter.Config{})
	check(err)
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Idempotency-Key")
		resp, err := http.Post(os.Getenv("EFFECTS_URL")+"?id="+url.QueryEscape(id), "", nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = resp.Body.Close()
		w.WriteHeader(http.StatusCreated)
	})
	check(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), m.Handler(pay)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
