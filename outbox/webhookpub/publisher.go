// Package webhookpub publishes the messages of an outbox as webhooks, signed by the rules of
// Standard Webhooks 1.0.0 (github.com/standard-webhooks/standard-webhooks,
// spec/standard-webhooks.md).
//
//	publisher, err := webhookpub.New(webhookpub.Config{
//		Endpoints: func(ctx context.Context, topic string) ([]webhookpub.Endpoint, error) {
//			return endpointsOf(ctx, topic) // of your customer
//		},
//	})
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Publisher: publisher, BatchSize: 100, ...})
//
// The payload is the body of a POST request. The header webhook-id is Message.ID, which stays the
// same when a message is sent again; see [Publisher.Check] for the IDs that it can be. The header
// webhook-timestamp is the time of the attempt, and webhook-signature has one v1 signature for each
// secret. A message's header Content-Type becomes that of the request, by default application/json.
// Its other headers are not sent, because no signature covers them. The receiver of package
// httpadapter/webhook accepts these webhooks.
//
// # Answers
//
// 2xx acknowledges the message. 400, 410, 413, 415 and 422 are final or about the message, and are
// marked by [outbox.Reject]: after RelayConfig.MaxAttempts failures the relay parks the message.
// The relay tries again after every other answer, even after a redirect, which is not followed.
// After an answer other than 2xx with Retry-After the Publisher sends nothing to that URL before
// then, for at most [MaxRetryAfter]. It remembers that only in memory.
//
// # Topics and endpoints
//
// A message with several endpoints is acknowledged when all of them have answered 2xx. Until then
// each attempt sends it to all of them again. A relay leaves a topic out while nothing of it is
// acknowledged, so use a topic for each endpoint: then a slow endpoint holds up no other.
//
// A call of Publish must end within RelayConfig.PublishTimeout. Set that to more than the time
// limit of a request, and BatchSize to the number of messages that the slowest endpoint answers in
// that time.
package webhookpub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/outbox"
)

// Defaults of a [Config], and limits.
const (
	DefaultTimeout  = 15 * time.Second
	DefaultParallel = 16
	// MaxRetryAfter bounds the wait that a Retry-After can ask for.
	MaxRetryAfter = time.Hour

	maxAnswer = 64 << 10 // bytes read of an answer, so that its connection can be used again
	maxQuote  = 200      // bytes of an answer that an error shows
)

// Endpoint is where a webhook goes.
type Endpoint struct {
	// URL with http or https. Errors show only its host. If customers choose it, give Config.Client
	// a transport that refuses addresses of your own network.
	URL string
	// Secrets sign the webhook, with one signature each. Give at least one secret, and both the old
	// and the new one while you change it. A secret is whsec_ and base64 of 24 to 64 bytes.
	Secrets []string
}

// Config says where webhooks go. Endpoints is required.
type Config struct {
	// Endpoints returns the endpoints of a topic, at least one. It is called once for each call of
	// Publish, by several goroutines at once. An error fails the messages of that call; mark it by
	// [outbox.Reject] if the topic is gone for good. No default.
	Endpoints func(ctx context.Context, topic string) ([]Endpoint, error)
	// Client sends the requests. The Publisher uses a copy that follows no redirects; if Timeout is
	// 0 the copy has DefaultTimeout. Default: a new client.
	Client *http.Client
	// Parallel is how many messages one call of Publish sends at once, 1 to 1000. Default:
	// [DefaultParallel].
	Parallel int
}

// Publisher sends webhooks, those of one topic and key in their order. Make it with [New]. It is
// safe for concurrent use and has nothing to close.
type Publisher struct {
	endpoints func(ctx context.Context, topic string) ([]Endpoint, error)
	client    http.Client
	parallel  int

	mu    sync.Mutex
	until map[string]time.Time // by URL: nothing is sent before
}

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Checker   = (*Publisher)(nil)
)

// New checks the configuration. An [*outbox.InputError] names what is wrong.
func New(cfg Config) (*Publisher, error) {
	if cfg.Parallel == 0 {
		cfg.Parallel = DefaultParallel
	}
	switch {
	case cfg.Endpoints == nil:
		return nil, &outbox.InputError{Field: "webhookpub.Config.Endpoints", Reason: "is nil"}
	case cfg.Parallel < 1 || cfg.Parallel > 1000:
		return nil, &outbox.InputError{Field: "webhookpub.Config.Parallel",
			Reason: fmt.Sprintf("is %d, must be 1 to 1000", cfg.Parallel)}
	}
	p := &Publisher{endpoints: cfg.Endpoints, parallel: cfg.Parallel,
		until: map[string]time.Time{}}
	if cfg.Client != nil {
		p.client = *cfg.Client
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		t.MaxIdleConnsPerHost = cfg.Parallel // 2 would open a connection for most requests
		p.client.Transport = t
	}
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	if p.client.Timeout == 0 {
		p.client.Timeout = DefaultTimeout
	}
	return p, nil
}

// Check refuses a message whose ID cannot be a webhook-id: one with a dot, a space, or any
// character that is not visible ASCII. With dots in IDs, two messages could have the same signed
// text.
func (p *Publisher) Check(m *outbox.Message) error {
	if i := strings.IndexFunc(m.ID, func(c rune) bool {
		return c <= ' ' || c > '~' || c == '.'
	}); i >= 0 {
		return fmt.Errorf("webhookpub: the ID %q has a dot, a space or no ASCII at %d", m.ID, i)
	}
	return nil
}

// Publish sends each message to the endpoints of its topic, with [outbox.PublishEach]. All messages
// are of one topic. When ctx ends it gives up the requests that are on their way. An endpoint that
// has received one of them gets the message again, with the same webhook-id.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	if len(messages) == 0 {
		return nil
	}
	topic := messages[0].Topic
	endpoints, err := p.endpoints(ctx, topic)
	if err == nil && len(endpoints) == 0 {
		err = fmt.Errorf("webhookpub: topic %q has no endpoints", topic)
	}
	return outbox.PublishEach(ctx, messages, p.parallel,
		func(ctx context.Context, m *outbox.Message) error {
			if err != nil {
				return err
			}
			return p.deliver(ctx, m, endpoints)
		})
}

// deliver sends to every endpoint, so that one that fails does not keep a message from the others.
// It rejects the message only when every error is final.
func (p *Publisher) deliver(ctx context.Context, m *outbox.Message, to []Endpoint) (all error) {
	allFinal := true
	for i := range to {
		final, err := p.post(ctx, m, &to[i])
		all = errors.Join(all, err)
		allFinal = allFinal && (final || err == nil)
	}
	if allFinal {
		return outbox.Reject(all)
	}
	return all
}

func (p *Publisher) post(ctx context.Context, m *outbox.Message, to *Endpoint) (final bool,
	err error) {
	now := time.Now()
	req, err := request(ctx, m, to, now)
	if err != nil {
		return false, err
	}
	host := req.URL.Host
	if left := p.rest(to.URL, now); left > 0 {
		return false, fmt.Errorf("webhookpub: %s wants no requests for another %v", host,
			left.Round(time.Millisecond))
	}
	resp, err := p.client.Do(req)
	if err != nil {
		var named *url.Error
		if errors.As(err, &named) {
			err = named.Err // without the URL, which may be a secret
		}
		return false, fmt.Errorf("webhookpub: %s: %w", host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	// An answer that is cut off still has its status.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	p.retryAfter(to.URL, resp.Header.Get("Retry-After"), time.Now())
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusGone, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		final = true
	}
	return final, fmt.Errorf("webhookpub: %s answered %s: %q", host, resp.Status,
		body[:min(len(body), maxQuote)])
}

// rest is how long nothing may be sent to a URL from now on.
func (p *Publisher) rest(to string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[to].Sub(now)
}

// retryAfter remembers a Retry-After, in seconds or as a date (RFC 9110, 10.2.3).
func (p *Publisher) retryAfter(to, text string, now time.Time) {
	until, err := http.ParseTime(text)
	if seconds, bad := strconv.ParseUint(text, 10, 32); bad == nil {
		until, err = now.Add(time.Duration(seconds)*time.Second), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.until, func(_ string, at time.Time) bool { return !at.After(now) })
	if err == nil && until.After(now) {
		p.until[to] = now.Add(min(until.Sub(now), MaxRetryAfter))
	}
}
