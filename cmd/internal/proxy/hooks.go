package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// provider makes the preset of the provider, with its secrets.
func (h *Hook) provider() (webhook.Provider, error) {
	var secrets []string
	for _, s := range h.Secrets {
		text, err := s.read()
		if err != nil {
			return webhook.Provider{}, fmt.Errorf("secrets: %w", err)
		}
		secrets = append(secrets, text)
	}
	switch h.Provider {
	case "twilio", "square":
		if h.URL == "" {
			return webhook.Provider{}, errors.New("url is missing: the provider signs it")
		}
	case "paypal":
		return webhook.PayPal(webhook.PayPalConfig{WebhookIDs: h.WebhookIDs})
	}
	preset, ok := map[string]func(...string) (webhook.Provider, error){
		"standard": webhook.StandardWebhooks, "stripe": webhook.Stripe, "github": webhook.GitHub,
		"shopify": webhook.Shopify, "slack": webhook.Slack, "adyen": webhook.Adyen,
		"mailgun": webhook.Mailgun,
		"twilio": func(tokens ...string) (webhook.Provider, error) {
			return webhook.Twilio(h.URL, tokens...)
		},
		"square": func(keys ...string) (webhook.Provider, error) {
			return webhook.Square(h.URL, keys...)
		},
	}[h.Provider]
	if !ok {
		return webhook.Provider{}, fmt.Errorf("provider is %q; standard, stripe, github, shopify, "+
			"slack, twilio, adyen, paypal, square and mailgun are known", h.Provider)
	}
	return preset(secrets...)
}

// hook returns the receiver of a webhook. It has a Deduper of its own, because its window depends
// on the provider.
func (o *Options) hook(store dedup.Store, s *site, h *Hook) (http.Handler, error) {
	p, err := h.provider()
	if err != nil {
		return nil, err
	}
	run, err := s.runner("webhook."+h.Endpoint, store, dedup.Config{Namespace: o.Namespace,
		Window:   cmp.Or(h.Window, max(webhook.DefaultWindow, p.Horizon)),
		LeaseTTL: o.Lease, Logger: s.log})
	if err != nil {
		return nil, err
	}
	cfg := webhook.Config{Endpoint: h.Endpoint, Timeout: cmp.Or(h.Timeout, o.Timeout),
		Relabelled: h.Relabelled, Logger: s.log}
	if len(h.Events) > 0 {
		cfg.Handles = func(event string) bool { return slices.Contains(h.Events, event) }
	}
	receiver, err := webhook.New(run, p, h.forward(s.upstream), cfg)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receiver.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
	}), nil
}

// requestKey is the context key of a webhook's request, and endpointKey that of its endpoint.
type (
	requestKey  struct{}
	endpointKey struct{}
)

// forward returns the handler of a verified event: the service gets the request as the provider
// sent it. Only a 2xx completes the event. After any other answer the provider sends the event
// again: even a 4xx may be a mistake of the service, and acknowledging the event would then lose
// it.
func (h *Hook) forward(u *upstream) webhook.Handler {
	return func(ctx context.Context, d *webhook.Delivery) error {
		in, _ := ctx.Value(requestKey{}).(*http.Request)
		r := in.Clone(context.WithValue(ctx, endpointKey{}, h.Endpoint))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(d.Body)), int64(len(d.Body))
		r.TransferEncoding = nil
		if h.To != "" {
			r.URL.Path, r.URL.RawPath = h.To, ""
		}
		answer := &statusOnly{header: http.Header{}}
		u.pass(answer, r, func() bool { return true }) // half an answer has a status, too
		switch {
		case answer.status == 0: // see fail
			return fmt.Errorf("the service did not answer: %w", context.Cause(ctx))
		case answer.status < 200 || answer.status > 299:
			return fmt.Errorf("the service answered %d", answer.status)
		}
		return nil
	}
}

// statusOnly is a ResponseWriter that keeps only the status, or zero if nothing was answered.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header { return s.header }

func (s *statusOnly) WriteHeader(status int) {
	if s.status == 0 && status >= 200 {
		s.status = status
	}
}

func (s *statusOnly) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	return len(p), nil
}
