package outbox_test

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/webhookpub"
)

// hooks is a receiver of webhooks that verifies them with the specification's own library. Closing
// it breaks the connections of requests that it has received and not answered.
type hooks struct {
	addr, secret string
	verifier     *standardwebhooks.Webhook

	mu     sync.Mutex
	server *http.Server
	got    map[string][]outbox.Message // by topic
}

func startHooks(t *testing.T) *hooks {
	t.Helper()
	s := &hooks{addr: freeAddress(t), got: map[string][]outbox.Message{}}
	s.secret = "whsec_" + base64.StdEncoding.EncodeToString(random(32))
	verifier, err := standardwebhooks.NewWebhook(s.secret)
	require.NoError(t, err)
	s.verifier = verifier
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

func (s *hooks) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", s.addr)
	require.NoError(t, err)
	server := &http.Server{Handler: s, ReadHeaderTimeout: patience}
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

func (s *hooks) kill(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.NoError(t, s.server.Close())
}

func (s *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = s.verifier.Verify(body, r.Header)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	topic := r.URL.Path[1:]
	s.got[topic] = append(s.got[topic], outbox.Message{ID: r.Header.Get("Webhook-Id"),
		Topic: topic, Payload: body})
}

func (s *hooks) publisher(t *testing.T) outbox.Publisher {
	t.Helper()
	p, err := webhookpub.New(webhookpub.Config{
		Client: &http.Client{Timeout: time.Second},
		Endpoints: func(_ context.Context, topic string) ([]webhookpub.Endpoint, error) {
			return []webhookpub.Endpoint{{URL: "http://" + s.addr + "/" + topic,
				Secrets: []string{s.secret}}}, nil
		},
	})
	require.NoError(t, err)
	return p
}

func TestWebhooks(t *testing.T) {
	s := startHooks(t)
	testTarget(t, &target{
		publisher: s.publisher,
		create:    func(*testing.T, string) {},
		received: func(_ *testing.T, topic string) []outbox.Message {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.got[topic]
		},
		kill: s.kill, start: s.start,
	})
}
