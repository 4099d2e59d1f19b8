package docs_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/redisadapter"
)

// errLost is the answer of a downstream that got lost after the request had left.
var errLost = errors.New("the connection broke after the request had been sent")

// charging is an effect with an unknown end.
func charging(ctx context.Context) error {
	if err := dedup.MarkIrreversible(ctx); err != nil {
		return err
	}
	return errLost
}

// story is an on-call story: the adapters of the guide's table over one Redis.
type story struct {
	*testing.T
	store  *redisadapter.Store
	prefix string
	redis  string
	binary string
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{T: t, prefix: servertest.Prefix(t), redis: servertest.Redis(t),
		binary: filepath.Join(t.TempDir(), "onceward")}
	client := redis.NewClient(&redis.Options{Addr: s.redis, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisadapter.New(t.Context(), client, redisadapter.Options{Prefix: s.prefix,
		OnFinding: func(preflight.Finding) {}})
	require.NoError(t, err)
	s.store = store
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", s.binary,
		"./cmd/onceward")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return s
}

func (s *story) deduper(namespace string) *dedup.Deduper {
	d, err := dedup.New(s.store, dedup.Config{Namespace: namespace, Window: 32 * 24 * time.Hour,
		LeaseTTL: time.Minute})
	require.NoError(s, err)
	s.Cleanup(func() { _ = d.Close(context.WithoutCancel(s.Context())) })
	return d
}

func (s *story) runner(namespace string) httpadapter.Runner {
	run, err := httpadapter.Claimed(s.deduper(namespace))
	require.NoError(s, err)
	return run
}

// TestOnCallStory runs each line of the guide's table: one command leads from the data that a
// customer gives to the record and its explanation.
func TestOnCallStory(t *testing.T) {
	s := newStory(t)
	adapters := map[string]func(){"shipping": s.kafka, "api": s.request, "webhooks": s.webhook,
		"rpc": s.call, "jobs": s.queue, "agents": s.tool}
	page := read(t, "docs/guides/operating.md")
	lines := regexp.MustCompile("`onceward (explain [^`]*--namespace (\\w+) [^`]*)`").
		FindAllStringSubmatch(page, -1)
	replayed := 0
	for _, line := range lines {
		happens, found := adapters[line[2]]
		if !found {
			continue
		}
		replayed++
		t.Run(line[2], func(t *testing.T) {
			s.T = t
			s.explain(strings.Fields(line[1]), 1, "absent")
			happens()
			id := s.explain(strings.Fields(line[1]), 0, "uncertain")
			s.explain([]string{"explain", "level=WARN msg=uncertain key_id=" + id}, 0, "uncertain")
		})
	}
	assert.Equal(t, len(adapters), replayed, "lines of the table")
}

// explain runs a command, requires a state and advice about it, and returns the ID.
func (s *story) explain(args []string, code int, state string) string {
	s.Helper()
	args = append(args, "--redis", "redis://"+s.redis, "--prefix", s.prefix, "--json")
	cmd := exec.CommandContext(s.Context(), s.binary, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		assert.Equal(s, code, exit.ExitCode(), "%v", args)
	} else {
		require.NoError(s, err)
		assert.Zero(s, code, "%v", args)
	}
	var says struct {
		ID, State string
		Why, Do   []string
	}
	require.NoError(s, json.Unmarshal(out, &says), "%s", out)
	assert.Equal(s, state, says.State, "%v", args)
	assert.NotEmpty(s, says.Why, "%v", args)
	assert.NotEmpty(s, says.Do, "%v", args)
	if state == "uncertain" {
		assert.Contains(s, strings.Join(says.Do, " "), "onceward resolve --id "+says.ID, "%v", args)
	}
	return says.ID
}

func (s *story) kafka() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(s, err)
	s.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(s, err)
	s.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	require.NoError(s, client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("{}"),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte("m-4711")}}}).FirstErr())
	parked := false
	err = kafkafranz.Consume(ctx, cluster.ListenAddrs(), "shipping", []string{"orders"},
		[]kgo.Opt{kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, kafkaadapter.Config{
			Deduper: s.deduper("shipping"),
			Handler: func(ctx context.Context, _ *kafkaadapter.Message) error {
				return charging(ctx)
			},
			Park: func(context.Context, *kafkaadapter.Message, error) error {
				parked = true
				cancel()
				return nil
			},
		})
	require.True(s, parked, "%v", err)
}

func (s *story) request() {
	m, err := httpadapter.New(s.runner("api"), func(*http.Request) (string, error) {
		return "alice", nil
	}, httpadapter.Config{})
	require.NoError(s, err)
	r := httptest.NewRequest(http.MethodPost, "https://api.example.com/payments",
		strings.NewReader("{}")).WithContext(s.Context())
	r.Header.Set("Idempotency-Key", "k-1")
	w := httptest.NewRecorder()
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := charging(r.Context())
		http.Error(w, err.Error(), http.StatusBadGateway)
	})).ServeHTTP(w, r)
	require.Equal(s, http.StatusBadGateway, w.Code)
}

func (s *story) webhook() {
	const secret = "whsec_0123456789abcdef"
	stripe, err := webhook.Stripe(secret)
	require.NoError(s, err)
	receiver, err := webhook.New(s.runner("webhooks"), stripe,
		func(ctx context.Context, _ *webhook.Delivery) error { return charging(ctx) },
		webhook.Config{Endpoint: "billing"})
	require.NoError(s, err)
	body := `{"id":"evt_A","type":"charge.succeeded"}`
	now := fmt.Sprint(time.Now().Unix())
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(now + "." + body))
	r := httptest.NewRequest(http.MethodPost, "/stripe", strings.NewReader(body))
	r.Header.Set("Stripe-Signature", "t="+now+",v1="+hex.EncodeToString(mac.Sum(nil)))
	w := httptest.NewRecorder()
	receiver.ServeHTTP(w, r.WithContext(s.Context()))
	require.GreaterOrEqual(s, w.Code, 500, w.Body)
}

func (s *story) call() {
	once, err := grpcadapter.UnaryServerInterceptor(s.runner("rpc"),
		func(context.Context, string) (string, error) { return "alice", nil }, grpcadapter.Config{})
	require.NoError(s, err)
	ctx := metadata.NewIncomingContext(s.Context(),
		metadata.Pairs(grpcadapter.KeyMetadata, "g-1"))
	_, err = once(ctx, wrapperspb.String("5 EUR"),
		&grpc.UnaryServerInfo{FullMethod: "/pay.Pay/Charge"},
		func(ctx context.Context, _ any) (any, error) { return nil, charging(ctx) })
	require.Error(s, err)
}

func (s *story) queue() {
	consumer, err := queue.New(queue.Config{Deduper: s.deduper("jobs"),
		Handler: func(ctx context.Context, _ *queue.Delivery) error { return charging(ctx) }})
	require.NoError(s, err)
	redelivered := false
	_ = consumer.Handle(s.Context(), &queue.Delivery{ID: "q-1", Scope: "billing",
		Payload: []byte("{}"),
		Ack:     func(context.Context) error { return nil },
		Nack: func(context.Context, time.Duration) error {
			redelivered = true
			return nil
		}})
	require.True(s, redelivered)
}

func (s *story) tool() {
	once, err := mcpadapter.New(s.runner("agents"),
		func(context.Context, *mcp.CallToolRequest) (string, error) { return "alice", nil },
		mcpadapter.Config{Name: "payments", MetaKey: "op"})
	require.NoError(s, err)
	server := mcp.NewServer(&mcp.Implementation{Name: "payments"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "charge"}, func(ctx context.Context,
		_ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, charging(ctx)
	})
	server.AddReceivingMiddleware(once)
	here, there := mcp.NewInMemoryTransports()
	_, err = server.Connect(s.Context(), there, nil)
	require.NoError(s, err)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(s.Context(),
		here, nil)
	require.NoError(s, err)
	s.Cleanup(func() { _ = client.Close() })
	_, _ = client.CallTool(s.Context(), &mcp.CallToolParams{Name: "charge",
		Meta: mcp.Meta{"op": "t-1"}, Arguments: struct{}{}})
}
