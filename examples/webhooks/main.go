// Webhooks receives the events of two senders once, however often they deliver them:
//
//	go run ./examples/webhooks -try
//	go run ./examples/webhooks -redis redis://127.0.0.1:6379
//
// It verifies before it looks at anything, and answers 200 only to what is on record: a 2xx ends the
// sender's deliveries. Without -redis there is a Redis inside of the process, which forgets with it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/redisadapter"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "address to listen on")
	address := flag.String("redis", "", "URL of Redis 7 or newer; none: one inside of this process")
	try := flag.Bool("try", false, "deliver some events to itself, and end")
	flag.Parse()
	if err := run(*listen, *address, *try); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, address string, try bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// What the senders' pages show when an endpoint is set up. With two of them, one can be rotated.
	secrets := secrets{
		billing: cmp.Or(os.Getenv("BILLING_SECRET"), "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"),
		github:  cmp.Or(os.Getenv("GITHUB_SECRET"), "It's a Secret to Everybody"),
	}
	client, closeRedis, err := connect(address)
	if err != nil {
		return err
	}
	defer closeRedis()
	handler, closeDeduper, err := newReceivers(ctx, client, "webhooks", secrets, show)
	if err != nil {
		return err
	}
	defer closeDeduper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	log.Printf("listening on http://%s/hooks/billing and /hooks/github", l.Addr())
	if try {
		err = deliverAll(ctx, "http://"+l.Addr().String(), secrets)
	} else {
		<-ctx.Done()
	}
	// Handlers that run are waited for: what they have done is recorded.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		return end
	}
	return err
}

// connect returns a client, and what closes it.
func connect(address string) (*redis.Client, func(), error) {
	if address == "" {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil {
			return nil, nil, err
		}
		client := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
		return client, func() { _ = client.Close(); m.Close() }, nil
	}
	opt, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, err
	}
	opt.ContextTimeoutEnabled = true // or a call would not end with its context
	client := redis.NewClient(opt)
	return client, func() { _ = client.Close() }, nil
}

type secrets struct{ billing, github string }

// newReceivers returns the handler of both endpoints, and what ends its deduper.
func newReceivers(ctx context.Context, client *redis.Client, namespace string, s secrets, handle webhook.Handler) (http.Handler, func(), error) {
	// OnFinding: what is said of a Redis that keeps nothing on disk. In production, read it.
	store, err := redisadapter.New(ctx, client, redisadapter.Options{OnFinding: func(f redisadapter.Finding) { slog.Debug("redis", "finding", f) }})
	if err != nil {
		return nil, nil, err
	}
	d, err := dedup.New(store, dedup.Config{
		Namespace: namespace,
		Window:    webhook.DefaultWindow, // longer than these senders try again
		LeaseTTL:  30 * time.Second,      // after a crash, the next delivery goes on
		SeenOnly:  true,                  // nobody replays the answer of a webhook
	})
	if err != nil {
		return nil, nil, err
	}
	closeDeduper := func() { _ = d.Close(context.WithoutCancel(ctx)) }
	once, err := httpadapter.Claimed(d)
	if err != nil {
		return nil, closeDeduper, err
	}
	billing, err := webhook.StandardWebhooks(s.billing)
	if err != nil {
		return nil, closeDeduper, err
	}
	github, err := webhook.GitHub(s.github)
	if err != nil {
		return nil, closeDeduper, err
	}
	mux := http.NewServeMux()
	for path, provider := range map[string]webhook.Provider{"/hooks/billing": billing, "/hooks/github": github} {
		hook, err := webhook.New(once, provider, handle, webhook.Config{
			Endpoint: path, // part of each key: two endpoints both get an event
			Handles:  func(event string) bool { return strings.HasPrefix(event, "invoice.") || event == "push" },
			Logger:   slog.Default(),
		})
		if err != nil {
			return nil, closeDeduper, err
		}
		mux.Handle("POST "+path, hook)
	}
	return mux, closeDeduper, nil
}

// show is the effect. It should be short: senders hang up after some seconds, and deliver again. What
// takes longer belongs into a queue.
func show(_ context.Context, d *webhook.Delivery) error {
	var body map[string]any
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return dedup.Permanent(err) // no delivery of it will be better: it is recorded, and acknowledged
	}
	fmt.Printf("  effect: %s %s %s\n", d.Provider, d.Type, d.ID)
	return nil
}
