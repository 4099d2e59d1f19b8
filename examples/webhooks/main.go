// Webhooks handles each event of two senders once, however often they deliver it:
//
//	go run ./examples/webhooks -try
//	BILLING_SECRET=whsec_... GITHUB_SECRET=... go run ./examples/webhooks -redis redis://127.0.0.1:6379
//
// It verifies a webhook before it looks at anything else. A 2xx ends the sender's deliveries, so it
// answers 200 only to an event that is on record, or one that it does not handle. Without -redis,
// Redis runs inside this process, and forgets everything when it ends.
package main

import (
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
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	secrets, err := readSecrets(os.Getenv, try)
	if err != nil {
		return err
	}
	client, closeRedis, err := connect(address)
	if err != nil {
		return err
	}
	defer closeRedis()
	// Findings about a Redis that keeps nothing on disk go to the log, except for the Redis in this
	// process.
	var options redisadapter.Options
	if address == "" {
		options.OnFinding = func(preflight.Finding) {}
	}
	store, err := redisadapter.New(ctx, client, options)
	if err != nil {
		return err
	}
	d, err := newDeduper(store, "webhooks")
	if err != nil {
		return err
	}
	defer func() { _ = d.Close(context.WithoutCancel(ctx)) }()
	handler, err := newReceivers(d, secrets, show)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		// WriteTimeout is longer than a handler may take.
		WriteTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	log.Printf("listening on http://%s/hooks/billing and /hooks/github", l.Addr())
	if try {
		err = deliverAll(ctx, "http://"+l.Addr().String(), secrets)
	} else {
		<-ctx.Done()
	}
	// The server waits for running handlers, so that their effects are recorded.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		return end
	}
	return err
}

// connect returns a client, and a function that closes it.
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
	opt.ContextTimeoutEnabled = true // otherwise a call would not end with its context
	client := redis.NewClient(opt)
	return client, func() { _ = client.Close() }, nil
}

// secrets are what the senders' pages show when you set up an endpoint.
type secrets struct{ billing, github string }

// readSecrets has defaults only for -try: whoever knows a secret can forge events.
func readSecrets(getenv func(string) string, try bool) (secrets, error) {
	if try {
		return secrets{billing: "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
			github: "It's a Secret to Everybody"}, nil
	}
	s := secrets{billing: getenv("BILLING_SECRET"), github: getenv("GITHUB_SECRET")}
	if s.billing == "" || s.github == "" {
		return s, errors.New("BILLING_SECRET and GITHUB_SECRET must be set; -try needs none")
	}
	return s, nil
}

func newDeduper(store dedup.Store, namespace string) (*dedup.Deduper, error) {
	return dedup.New(store, dedup.Config{
		Namespace: namespace,
		Window:    webhook.DefaultWindow, // longer than these senders retry
		// this is less than the 10 s after which GitHub hangs up
		LeaseTTL: 8 * time.Second,
		SeenOnly: true, // nobody replays the answer of a webhook
	})
}

// newReceivers returns the handler of both endpoints.
func newReceivers(d *dedup.Deduper, s secrets, handle webhook.Handler) (http.Handler, error) {
	once, err := httpadapter.Claimed(d)
	if err != nil {
		return nil, err
	}
	billing, err := webhook.StandardWebhooks(s.billing)
	if err != nil {
		return nil, err
	}
	github, err := webhook.GitHub(s.github)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for path, provider := range map[string]webhook.Provider{"/hooks/billing": billing,
		"/hooks/github": github} {
		hook, err := webhook.New(once, provider, handle, webhook.Config{
			Endpoint: path, // part of each key: an event for two endpoints is handled by both
			Handles: func(event string) bool {
				return strings.HasPrefix(event, "invoice.") || event == "push"
			},
			Logger: slog.Default(),
		})
		if err != nil {
			return nil, err
		}
		mux.Handle("POST "+path, hook)
	}
	return mux, nil
}

// show is the effect. It should be short: senders hang up after some seconds, and deliver again.
// Put longer work into a queue.
func show(_ context.Context, d *webhook.Delivery) error {
	var body map[string]any
	if err := json.Unmarshal(d.Body, &body); err != nil {
		// a redelivery would be just as bad, so the event is recorded as failed, and acknowledged
		return dedup.Permanent(err)
	}
	fmt.Printf("  effect: %s %s %s\n", d.Provider, d.Type, d.ID)
	return nil
}
