package watermilladapter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/watermilladapter"
	"github.com/onceward/onceward/dedup"
)

func deduper(t testing.TB, store dedup.Store, edit ...func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Namespace: "shop", Window: time.Hour, LeaseTTL: time.Minute}
	for _, f := range edit {
		f(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func middlewareOf(t testing.TB, d *dedup.Deduper,
	cfg watermilladapter.Config) *watermilladapter.Once {
	t.Helper()
	once, err := watermilladapter.New(d, cfg)
	require.NoError(t, err)
	return once
}

// scoped takes all messages for those of one handler.
func scoped(*message.Message) (string, error) { return "charge", nil }

// shop is a Router over a pubsub in memory, and what came of it.
type shop struct {
	t      *testing.T
	pubsub *gochannel.GoChannel
	router *message.Router

	mu      sync.Mutex
	effects map[string]int      // by handler and UUID
	out     map[string][]string // UUIDs that were published, by topic
	refuse  int                 // how many publications are still to fail
}

func newShop(t *testing.T) *shop {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second},
		watermill.NopLogger{})
	require.NoError(t, err)
	return &shop{
		t: t, router: router, effects: map[string]int{}, out: map[string][]string{},
		pubsub: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true},
			watermill.NopLogger{}),
	}
}

// Publish implements message.Publisher: it fails as often as it was told to.
func (s *shop) Publish(topic string, messages ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse > 0 {
		s.refuse--
		return errors.New("the broker is away")
	}
	for _, m := range messages {
		s.out[topic] = append(s.out[topic],
			m.UUID+" "+string(m.Payload)+" "+m.Metadata.Get("currency"))
	}
	return nil
}

func (s *shop) Close() error { return nil }

func (s *shop) ran(handler, uuid string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[handler+" "+uuid]++
	return s.effects[handler+" "+uuid]
}

// run sends messages and returns when the handlers have acknowledged all of them.
func (s *shop) run(uuids ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	over := make(chan error, 1)
	go func() { over <- s.router.Run(ctx) }()
	<-s.router.Running()
	for _, uuid := range uuids {
		// until all have acknowledged it
		require.NoError(s.t, s.pubsub.Publish("orders", message.NewMessage(uuid, []byte("ten"))))
	}
	require.NoError(s.t, s.router.Close())
	require.NoError(s.t, <-over)
}

func (s *shop) wantEffects(handler string, want map[string]int) {
	s.t.Helper()
	for uuid, n := range want {
		got := s.effects[handler+" "+uuid]
		assert.Equal(s.t, n, got, "%s ran %s %d times", handler, uuid, got)
	}
}

// TestRouter: duplicates, a handler that fails, and two handlers of one topic.
func TestRouter(t *testing.T) {
	s := newShop(t)
	once := middlewareOf(t, deduper(t, dedup.Memory(100)),
		watermilladapter.Config{Fingerprint: true})
	s.router.AddMiddleware(once.Middleware)
	for _, name := range []string{"charge", "mail"} {
		s.router.AddConsumerHandler(name, "orders", s.pubsub, func(m *message.Message) error {
			a, ok := dedup.FromContext(m.Context())
			assert.False(t, !ok || a.Number < 1,
				"the handler's message has no attempt in its context")
			if n := s.ran(name, m.UUID); m.UUID == "b" && n < 3 {
				return errors.New("the bank is down")
			}
			return nil
		})
	}
	s.run("a", "b", "a", "b", "c")
	s.wantEffects("charge", map[string]int{"a": 1, "b": 3, "c": 1})
	s.wantEffects("mail", map[string]int{"a": 1, "b": 3, "c": 1})
}

// TestOutput: the messages of a handler are published although the broker was away when its effect
// was recorded, and again for each duplicate, under the same UUID.
func TestOutput(t *testing.T) {
	s := newShop(t)
	s.refuse = 2
	s.router.AddMiddleware(middlewareOf(t, deduper(t, dedup.Memory(100)),
		watermilladapter.Config{}).Middleware)
	s.router.AddHandler("charge", "orders", s.pubsub, "receipts",
		s, func(m *message.Message) ([]*message.Message, error) {
			receipt := message.NewMessage(fmt.Sprintf("receipt of %s, run %d", m.UUID,
				s.ran("charge", m.UUID)), m.Payload)
			receipt.Metadata.Set("currency", "EUR")
			if m.UUID == "quiet" {
				return nil, nil
			}
			return []*message.Message{receipt}, nil
		})
	s.run("a", "quiet", "a")
	s.wantEffects("charge", map[string]int{"a": 1, "quiet": 1})
	want := []string{"receipt of a, run 1 ten EUR", "receipt of a, run 1 ten EUR"}
	assert.Equal(t, want, s.out["receipts"], "published")
}

// TestPoison: a failure for good goes to the poison queue, once for each delivery, and runs once.
func TestPoison(t *testing.T) {
	s := newShop(t)
	poison, err := middleware.PoisonQueueWithFilter(s, "poison", watermilladapter.Poisoned)
	require.NoError(t, err)
	s.router.AddMiddleware(poison,
		middlewareOf(t, deduper(t, dedup.Memory(100)),
			watermilladapter.Config{NoOutput: true}).Middleware)
	s.router.AddConsumerHandler("charge", "orders", s.pubsub, func(m *message.Message) error {
		if n := s.ran("charge", m.UUID); m.UUID == "bad" {
			return dedup.Permanent(fmt.Errorf("no such account, try %d", n))
		}
		return nil
	})
	s.run("bad", "good", "bad")
	s.wantEffects("charge", map[string]int{"bad": 1, "good": 1})
	got := s.out["poison"]
	if assert.Len(t, got, 2, "poisoned") {
		assert.True(t, strings.HasPrefix(got[0], "bad"), "poisoned: %q", got)
		assert.True(t, strings.HasPrefix(got[1], "bad"), "poisoned: %q", got)
	}
}

// TestInFlight: a copy of a message that is running elsewhere is not acknowledged. It has its
// effect when the other attempt has given up.
func TestInFlight(t *testing.T) {
	store := dedup.Memory(100)
	once := middlewareOf(t, deduper(t, store), watermilladapter.Config{Scope: scoped})
	elsewhere, err := deduper(t, store).Claim(t.Context(), "a", dedup.WithScope("charge"))
	require.NoError(t, err)
	ran := 0
	h := once.Middleware(func(*message.Message) ([]*message.Message, error) {
		ran++
		return nil, nil
	})
	_, err = h(message.NewMessage("a", nil))
	assert.ErrorIs(t, err, dedup.ErrInFlight, "runs")
	assert.Zero(t, ran, "runs")
	require.NoError(t, elsewhere.Release(t.Context()))
	for range 2 {
		_, err := h(message.NewMessage("a", nil))
		assert.NoError(t, err, "runs")
		assert.Equal(t, 1, ran, "runs")
	}
}

// TestOutputTooLarge: output that could not be kept is published by the delivery that made it. A
// duplicate gets dedup.ErrNoResult, not an empty output.
func TestOutputTooLarge(t *testing.T) {
	d := deduper(t, dedup.Memory(100), func(c *dedup.Config) { c.ResultLimit = 100 })
	h := middlewareOf(t, d,
		watermilladapter.Config{Scope: scoped}).Middleware(
		func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("receipt", make([]byte, 200))}, nil
		})
	out, err := h(message.NewMessage("a", nil))
	assert.NoError(t, err, "the first")
	assert.Len(t, out, 1, "the first")
	out, err = h(message.NewMessage("a", nil))
	assert.ErrorIs(t, err, dedup.ErrNoResult, "a duplicate")
	assert.Nil(t, out, "a duplicate")
}

// TestRefusals: a bad argument is an error before a handler runs.
func TestRefusals(t *testing.T) {
	_, err := watermilladapter.New(nil, watermilladapter.Config{})
	assert.Error(t, err, "a nil Deduper is taken")
	_, err = watermilladapter.Repository(nil, "")
	assert.Error(t, err, "a nil Deduper is taken for a Repository")
	seen := deduper(t, dedup.Memory(100), func(c *dedup.Config) { c.SeenOnly = true })
	_, err = watermilladapter.New(seen, watermilladapter.Config{})
	assert.ErrorContains(t, err, "NoOutput", "a Deduper without results")
	ran := 0
	handler := func(*message.Message) ([]*message.Message, error) {
		ran++
		return []*message.Message{message.NewMessage("out", nil)}, nil
	}
	quiet := middlewareOf(t, seen,
		watermilladapter.Config{NoOutput: true, Scope: scoped}).Middleware(handler)
	out, err := quiet(message.NewMessage("a", nil))
	assert.ErrorIs(t, err, watermilladapter.ErrOutput, "output against NoOutput")
	assert.Nil(t, out, "output against NoOutput")
	assert.Equal(t, 1, ran, "output against NoOutput")
	d := deduper(t, dedup.Memory(100))
	ran = 0
	no := errors.New("no")
	for name, c := range map[string]struct {
		cfg  watermilladapter.Config
		uuid string
		want func(error) bool
	}{
		"no handler": {watermilladapter.Config{}, "a", func(err error) bool {
			return strings.Contains(fmt.Sprint(err), "Config.Scope")
		}},
		"no key": {watermilladapter.Config{Scope: scoped}, "", func(err error) bool {
			var in *dedup.InputError
			return errors.As(err, &in)
		}},
		"a bad key": {watermilladapter.Config{Scope: scoped,
			Key: func(*message.Message) (string, error) {
				return "", no
			}}, "a", func(err error) bool { return errors.Is(err, no) }},
		"a bad scope": {watermilladapter.Config{Scope: func(*message.Message) (string, error) {
			return "", no
		}}, "a", func(err error) bool { return errors.Is(err, no) }},
	} {
		_, err := middlewareOf(t, d, c.cfg).Middleware(handler)(message.NewMessage(c.uuid, nil))
		assert.True(t, c.want(err), "%s: ran %d times, %v", name, ran, err)
		assert.Zero(t, ran, "%s: runs, %v", name, err)
	}
}

// TestMismatch: a key that comes with another payload is not a duplicate.
func TestMismatch(t *testing.T) {
	h := middlewareOf(t, deduper(t, dedup.Memory(100)),
		watermilladapter.Config{Scope: scoped, Fingerprint: true}).
		Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	_, err := h(message.NewMessage("a", []byte("ten")))
	require.NoError(t, err)
	_, err = h(message.NewMessage("a", []byte("ten thousand")))
	assert.ErrorIs(t, err, dedup.ErrMismatch, "another payload")
}

// TestContext: the message has its own context back when the handler has returned or panicked.
func TestContext(t *testing.T) {
	h := middlewareOf(t, deduper(t, dedup.Memory(100)), watermilladapter.Config{Scope: scoped}).
		Middleware(func(m *message.Message) ([]*message.Message, error) { panic(m.UUID) })
	m := message.NewMessage("a", nil)
	before := m.Context()
	func() {
		defer func() {
			assert.Equal(t, "a", recover(), "recovered")
		}()
		_, _ = h(m)
	}()
	assert.True(t, before == m.Context(), "the message has the attempt's context still")
}

// TestRepository: only one of many callers finds a key new, over all Deduplicators of a scope.
func TestRepository(t *testing.T) {
	store := dedup.Memory(100)
	var first, again sync.Map
	var wg sync.WaitGroup
	for n := range 100 {
		repo, err := watermilladapter.Repository(deduper(t, store), "charge")
		require.NoError(t, err)
		wg.Go(func() {
			dup, err := repo.IsDuplicate(t.Context(), "a")
			assert.NoError(t, err)
			if dup {
				again.Store(n, true)
			} else {
				first.Store(n, true)
			}
		})
	}
	wg.Wait()
	count := func(m *sync.Map) (n int) {
		m.Range(func(any, any) bool { n++; return true })
		return n
	}
	assert.Equal(t, 1, count(&first), "answers to 100 callers")
	assert.Equal(t, 99, count(&again), "answers to 100 callers")
	other, err := watermilladapter.Repository(deduper(t, store), "mail")
	require.NoError(t, err)
	dup, err := other.IsDuplicate(t.Context(), "a")
	assert.False(t, dup, "in another scope: %v, %v", dup, err)
	assert.NoError(t, err, "in another scope: %v", dup)
	closed := deduper(t, store)
	require.NoError(t, closed.Close(t.Context()))
	gone, err := watermilladapter.Repository(closed, "charge")
	require.NoError(t, err)
	dup, err = gone.IsDuplicate(t.Context(), "b")
	assert.False(t, dup, "when the store cannot be asked: %v, %v", dup, err)
	assert.Error(t, err, "when the store cannot be asked: %v", dup)
}

// TestDeduplicatorLoses shows why Once is there: watermill's Deduplicator drops a message whose
// handler has failed.
func TestDeduplicatorLoses(t *testing.T) {
	repo, err := watermilladapter.Repository(deduper(t, dedup.Memory(100)), "")
	require.NoError(t, err)
	d := &middleware.Deduplicator{KeyFactory: middleware.NewMessageHasherSHA256(1 << 20),
		Repository: repo, Timeout: time.Second}
	ran := 0
	h := d.Middleware(func(*message.Message) ([]*message.Message, error) {
		ran++
		return nil, errors.New("the bank is down")
	})
	_, err = h(message.NewMessage("a", []byte("ten")))
	assert.Error(t, err, "the first: no error")
	_, err = h(message.NewMessage("a", []byte("ten")))
	assert.NoError(t, err, "the redelivery: it has always been dropped")
	assert.Equal(t, 1, ran, "the redelivery: it has always been dropped")
}
