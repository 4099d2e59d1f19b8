//go:build browser

package dashboard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/retry"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

const (
	workers    = 3
	partitions = 6
	length     = 5 * time.Minute
)

// plan lists the events, by their time since the beginning.
var plan = []struct {
	at time.Duration
	do func(*service)
}{
	{30 * time.Second, func(s *service) { s.kill(0) }},
	{35 * time.Second, func(s *service) { s.start(0) }},
	{70 * time.Second, func(s *service) { s.kill(1) }},
	{74 * time.Second, func(s *service) { s.start(1) }},
	{95 * time.Second, func(s *service) { s.redis.Stop(1) }}, // longer than a lease
	{103 * time.Second, func(s *service) { s.redis.Cont(1) }},
	{135 * time.Second, func(s *service) { s.providerDown.Store(true) }},
	{145 * time.Second, func(s *service) { s.brokerDown.Store(true) }},
	{165 * time.Second, func(s *service) { s.providerDown.Store(false) }},
	{180 * time.Second, func(s *service) { s.brokerDown.Store(false) }},
	{200 * time.Second, func(s *service) { s.kill(2) }},
	{206 * time.Second, func(s *service) { s.start(2) }},
	{235 * time.Second, func(s *service) { s.lose() }},
	{265 * time.Second, func(s *service) { s.acknowledge() }},
	{length, func(*service) {}},
}

// service is four Dedupers. payments is the consumers of a topic, in three processes that are
// killed. checkout is an API with leases in Redis, records in SQLite, a filter, an outbox and a
// downstream that fails. emails sends mails that may be sent twice. The last one handles webhooks
// in Observe mode.
type service struct {
	t       *testing.T
	targets []string
	kafka   []string
	redis   *servertest.Server
	client  *redis.Client
	jobs    [workers]job
	running [workers]*process

	provider *sdk.MeterProvider
	db       *sql.DB
	box      *outbox.Outbox
	checkout *telemetry.Metrics
	budget   *retry.Budget
	admitted *httpadapter.RetryBudget

	providerDown, brokerDown atomic.Bool
}

func newService(t *testing.T) *service {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := &service{t: t, kafka: cluster.ListenAddrs(),
		redis: servertest.Private(t, servertest.KindRedis)}
	s.createTopic()
	s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	t.Cleanup(func() { _ = s.client.Close() })
	for _, prefix := range []string{topic, "checkout"} {
		require.NoError(t, redisadapter.Init(t.Context(), s.client,
			guarded(prefix, redisadapter.FailClosed)))
	}
	for i := range s.jobs {
		s.jobs[i] = job{Listen: s.port(), Kafka: s.kafka, Redis: s.redis.Addr, Prefix: topic}
		s.start(i)
	}
	t.Cleanup(func() {
		for _, p := range s.running {
			p.end()
		}
	})
	s.provider, err = expose(s.port())
	require.NoError(t, err)
	return s
}

// createTopic creates a topic that keeps its messages for less than the window.
func (s *service) createTopic() {
	s.t.Helper()
	admin, err := sarama.NewClusterAdmin(s.kafka, consumerConfig())
	require.NoError(s.t, err)
	defer func() { _ = admin.Close() }()
	retention := fmt.Sprint((4 * time.Minute).Milliseconds())
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3,
		ConfigEntries: map[string]*string{"retention.ms": &retention}}
	require.NoError(s.t, admin.CreateTopic(topic, detail, false))
}

// port returns a free address, and adds it to the targets that are scraped.
func (s *service) port() string {
	s.t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	defer func() { _ = listen.Close() }()
	s.targets = append(s.targets, listen.Addr().String())
	return listen.Addr().String()
}

func (s *service) start(i int) { s.running[i] = startWorker(s.t, s.jobs[i]) }
func (s *service) kill(i int)  { s.running[i].kill() }

// lose makes Redis come back empty.
func (s *service) lose() {
	assert.NoError(s.t, s.client.FlushAll(s.t.Context()).Err())
}

// acknowledge does what an operator does after checking the lost data.
func (s *service) acknowledge() {
	for _, prefix := range []string{topic, "checkout"} {
		assert.NoError(s.t, redisadapter.ClearAmnesia(s.t.Context(), s.client,
			guarded(prefix, redisadapter.FailClosed)))
	}
}

// run runs the traffic and the plan from began on.
func (s *service) run(began time.Time) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var traffic sync.WaitGroup
	defer traffic.Wait()
	defer cancel()
	traffic.Go(func() { s.produce(ctx) })
	s.serve(ctx, &traffic)
	for _, step := range plan {
		require.NoError(s.t, backoff.Sleep(ctx, time.Until(began.Add(step.at))))
		step.do(s)
	}
}

// produce sends payments, in waves of 10 to 40 a second. Like the demo, it repeats some of them:
// soon, in another partition, and late.
func (s *service) produce(ctx context.Context) {
	producer, err := sarama.NewSyncProducer(s.kafka, consumerConfig())
	if !assert.NoError(s.t, err) {
		return
	}
	defer func() { _ = producer.Close() }()
	send := func(id string, partition int32) {
		message := &sarama.ProducerMessage{Topic: topic, Partition: partition,
			Value:   sarama.StringEncoder("10 EUR"),
			Headers: []sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(id)}}}
		if _, _, err := producer.SendMessage(message); ctx.Err() == nil {
			assert.NoError(s.t, err)
		}
	}
	s.wave(ctx, 10, 30, func(i int) {
		id, partition := fmt.Sprintf("pay-%06d", i), rand.Int32N(partitions)
		send(id, partition)
		again := func(partition int32, after time.Duration) {
			if rand.IntN(100) < 8 && backoff.Sleep(ctx, after) == nil {
				send(id, partition)
			}
		}
		again(partition, time.Duration(rand.IntN(2000))*time.Millisecond)
		again((partition+1)%partitions, time.Duration(rand.IntN(5000))*time.Millisecond)
		again(partition, time.Duration(20+rand.IntN(240))*time.Second)
	})
}

// wave calls do from goroutines of its own, from least to least+more times a second, until ctx
// ends, and waits for them.
func (s *service) wave(ctx context.Context, least, more float64, do func(i int)) {
	var under sync.WaitGroup
	defer under.Wait()
	began := time.Now()
	for i := 1; ; i++ {
		t := time.Since(began).Seconds()
		rate := least + more*(0.5+0.4*math.Sin(t/25)+0.1*rand.Float64())
		if backoff.Sleep(ctx, time.Duration(rand.ExpFloat64()*float64(time.Second)/rate)) != nil {
			return
		}
		under.Go(func() { do(i) })
	}
}

func (s *service) metrics(name string) *telemetry.Metrics {
	s.t.Helper()
	m, err := telemetry.NewMetrics(s.provider, telemetry.Config{Name: name, Window: window})
	require.NoError(s.t, err)
	return m
}

func (s *service) deduper(store dedup.Store, cfg dedup.Config) *dedup.Deduper {
	s.t.Helper()
	cfg.Window, cfg.LeaseTTL = window, lease
	d, err := dedup.New(store, cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = d.Close(ctx)
	})
	return d
}

// serve uses the Dedupers of this process.
func (s *service) serve(ctx context.Context, traffic *sync.WaitGroup) {
	s.t.Helper()
	s.openDatabase()
	s.checkout = s.metrics("checkout")
	var err error
	s.budget, err = retry.NewBudget(retry.BudgetConfig{Most: 30, Floor: 10})
	require.NoError(s.t, err)
	s.admitted, err = httpadapter.NewRetryBudget(httpadapter.RetryBudgetConfig{Ratio: 0.15,
		PerSecond: 0.1, Most: 5})
	require.NoError(s.t, err)
	provider := telemetry.Horizon{Source: "card network", For: 8 * time.Minute}
	_, err = s.checkout.NewAuditor(
		telemetry.AuditConfig{Horizons: []telemetry.Horizon{provider}})
	require.NoError(s.t, err)
	require.NoError(s.t, errors.Join(s.checkout.ObserveBudget(s.budget),
		s.checkout.ObserveRetryBudget(s.admitted), s.checkout.ObserveOutbox(s.box, s.db),
		s.startRelay(ctx, traffic)))
	checkout := s.openCheckout(ctx, traffic)
	plain, err := redisadapter.New(ctx, s.client,
		redisadapter.Options{Prefix: "plain", OnFinding: func(preflight.Finding) {}})
	require.NoError(s.t, err)
	sent, received := s.metrics("emails"), s.metrics("webhooks")
	emails := s.deduper(plain,
		dedup.Config{Namespace: "emails", Mode: dedup.FailOpen, Observer: sent.Observer()})
	webhooks := s.deduper(plain,
		dedup.Config{Namespace: "webhooks", Mode: dedup.Observe, Observer: received.Observer()})
	traffic.Go(func() { s.wave(ctx, 5, 15, func(i int) { s.call(ctx, checkout, i) }) })
	traffic.Go(func() { s.wave(ctx, 3, 4, func(i int) { s.deliver(ctx, emails, sent, i, 10, 0) }) })
	traffic.Go(func() { s.wave(ctx, 4, 8, func(i int) { s.deliver(ctx, webhooks, received, i, 15, 2) }) })
}

func (s *service) openDatabase() {
	s.t.Helper()
	var err error
	s.db, err = sql.Open("sqlite", "file:"+filepath.Join(s.t.TempDir(), "shop.db")+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = s.db.Close() })
	s.box, err = outbox.New(outbox.Config{Dialect: outbox.SQLite})
	require.NoError(s.t, err)
	require.NoError(s.t, s.box.Migrate(s.t.Context(), s.db))
}

// openCheckout opens the Deduper of the API, with a filter that follows the table.
func (s *service) openCheckout(ctx context.Context, traffic *sync.WaitGroup) *dedup.Deduper {
	s.t.Helper()
	records, err := sqlstore.New(s.db, sqlstore.Options{Dialect: sqladapter.SQLite})
	require.NoError(s.t, err)
	require.NoError(s.t, records.Migrate(ctx))
	leases, err := openStore(ctx, s.provider, "checkout", s.client,
		guarded("checkout", redisadapter.FailClosed))
	require.NoError(s.t, err)
	traffic.Go(func() { _ = leases.Watch(ctx, time.Second) })
	filter, err := bloom.New(bloom.Options{Window: window, Rate: 8})
	require.NoError(s.t, err)
	traffic.Go(func() {
		_ = filter.Follow(ctx, bloom.Source{Name: "checkout"}, bloom.FollowConfig{
			Every: 3 * time.Second, Overlap: 5 * time.Second,
			Scan: func(ctx context.Context, age time.Duration,
				yield func([16]byte, time.Duration) error) error {
				return records.Scan(ctx, sqlstore.ScanOptions{Age: age, ShortestWindow: window},
					func(id driver.ID, age time.Duration) error { return yield(id, age) })
			},
		})
	})
	store, err := layered.New(leases, records, layered.Config{HotWindow: 30 * time.Second,
		LeaseTTL: lease, Filter: filter, Observer: s.checkout.Observer()})
	require.NoError(s.t, err)
	return s.deduper(store, dedup.Config{Namespace: "checkout", CacheBytes: 1 << 20,
		Observer: s.checkout.Observer()})
}

// call is a request of a client. The client repeats it when its answer is lost, and now and then
// sends it twice at once or with another payload. The server refuses some of the retries.
func (s *service) call(ctx context.Context, d *dedup.Deduper, i int) {
	key, payload := fmt.Sprintf("order-%06d", i), "10 EUR"
	once := func(payload string) {
		if _, wait := s.admitted.Admit("shop", "", key, false); wait > 0 {
			return
		}
		_, _ = dedup.Do(ctx, d, key, func(ctx context.Context) (string, error) {
			return s.book(ctx, key)
		}, dedup.WithFingerprint([]byte(payload)))
	}
	var twice sync.WaitGroup
	if rand.IntN(25) == 0 {
		twice.Go(func() { once(payload) })
	}
	once(payload)
	twice.Wait()
	for _, after := range []time.Duration{time.Second, 4 * time.Second, 15 * time.Second,
		50 * time.Second, 100 * time.Second} {
		if rand.IntN(100) >= 15 ||
			backoff.Sleep(ctx, after+time.Duration(rand.Int64N(int64(after)))) != nil {
			break
		}
		once(payload)
	}
	if rand.IntN(150) == 0 {
		once("9999 EUR")
	}
}

// book charges at a provider, one time in twenty slowly, and inserts a message in the transaction
// of the effect. One time in a hundred it is unknown whether the charge happened.
func (s *service) book(ctx context.Context, key string) (string, error) {
	policy := retry.Policy{Attempts: 4,
		Backoff: retry.Backoff{Base: 50 * time.Millisecond, Cap: time.Second}, Budget: s.budget,
		OnRetry: s.checkout.OnRetry}
	charge, err := retry.Do(ctx, policy, func(ctx context.Context, _ int) (string, error) {
		takes := time.Duration(10+rand.IntN(60)) * time.Millisecond
		if rand.IntN(20) == 0 {
			takes = 3 * time.Second
		}
		if err := backoff.Sleep(ctx, takes); err != nil {
			return "", err
		}
		if n := rand.IntN(100); n < 3 || s.providerDown.Load() && n < 80 {
			return "", errors.New("the provider is busy")
		}
		return "ch_" + key, nil
	})
	if err != nil {
		return "", err
	}
	if rand.IntN(100) == 0 {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", err
		}
		return "", errors.New("the provider did not answer")
	}
	return charge, s.tell(ctx, key)
}

func (s *service) tell(ctx context.Context, key string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	message := outbox.Message{ID: "booked-" + key, Topic: "bookings",
		Key: []byte(fmt.Sprint("account-", rand.IntN(20))), Payload: []byte("10 EUR")}
	if err := s.box.InsertTx(ctx, tx, message); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.box.Notify()
	return nil
}

// deliver delivers a message, redelivers it with a chance of again percent each time, and with a
// chance of wrong percent sends it with another payload. One message in fifty has waited for longer
// than the window before it was delivered.
func (s *service) deliver(ctx context.Context, d *dedup.Deduper, m *telemetry.Metrics, i, again,
	wrong int) {
	key, written := fmt.Sprintf("msg-%06d", i), time.Now()
	if rand.IntN(50) == 0 {
		written = written.Add(-window - time.Minute)
	}
	once := func(payload string) {
		_, _ = dedup.Do(ctx, d, key, func(ctx context.Context) (string, error) {
			m.CountEffect(written)
			return "sent", backoff.Sleep(ctx, time.Duration(10+rand.IntN(40))*time.Millisecond)
		}, dedup.WithFingerprint([]byte(payload)))
	}
	once("hello")
	for rand.IntN(100) < again &&
		backoff.Sleep(ctx, time.Duration(rand.ExpFloat64()*float64(30*time.Second))) == nil {
		once("hello")
	}
	if rand.IntN(100) < wrong {
		once("good bye")
	}
}

// startRelay starts a relay whose broker is down for a while, and never accepts some of the
// messages.
func (s *service) startRelay(ctx context.Context, traffic *sync.WaitGroup) error {
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Outbox: s.box, DB: s.db, Publisher: broker{&s.brokerDown},
		OnPark:      func(context.Context, outbox.Parked) {},
		MaxAttempts: 2, RetryMax: 2 * time.Second, StopTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	traffic.Go(func() { _ = relay.Run(ctx) })
	return s.checkout.ObserveRelay(relay)
}

type broker struct{ down *atomic.Bool }

// Publish implements outbox.Publisher.
func (b broker) Publish(_ context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	for i, m := range messages {
		switch {
		case b.down.Load():
			errs[i] = errors.New("no broker answers")
		case strings.HasSuffix(m.ID, "77"):
			errs[i] = outbox.Reject(errors.New("too large"))
		case rand.IntN(200) == 0:
			errs[i] = errors.New("not enough replicas")
		}
	}
	return errs
}
