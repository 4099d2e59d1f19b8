package prove

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/internal/backoff"
)

// delivery is one attempt to hand a message to the program.
type delivery struct {
	id         string
	begun, end time.Time
	ok         bool
}

// sender sends messages and records each delivery.
type sender struct {
	url    string
	client *http.Client

	mu  sync.Mutex
	all []delivery
}

// order returns the ids in the order in which they are sent. Half of the duplicates come right
// after the message that they repeat, so that both are under way at once. The other half come
// anywhere after it.
func order(ids []string, duplicates float64, random *rand.Rand) []string {
	after := make([][]string, len(ids)) // the duplicates that follow each message
	var all []string
	for i, id := range ids {
		if random.Float64() < duplicates {
			at := i
			if random.IntN(2) == 0 {
				at += random.IntN(len(ids) - i)
			}
			after[at] = append(after[at], id)
		}
		all = append(append(all, id), after[i]...)
	}
	return all
}

// post sends messages until each is acknowledged. It pauses between them, so that all take about
// last.
func (s *sender) post(ctx context.Context, ids []string, workers int, last time.Duration) {
	queue := make(chan string)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for id := range queue {
				s.one(ctx, id)
			}
		})
	}
	pause := last / time.Duration(len(ids))
	for _, id := range ids {
		_ = backoff.Sleep(ctx, pause)
		select {
		case queue <- id:
		case <-ctx.Done():
		}
	}
	close(queue)
	running.Wait()
}

// one sends a message until it is acknowledged, or until ctx ends.
func (s *sender) one(ctx context.Context, id string) {
	for ctx.Err() == nil {
		d := delivery{id: id, begun: time.Now()}
		d.ok = s.attempt(ctx, id)
		s.record(d)
		if d.ok {
			return
		}
		_ = backoff.Sleep(ctx, 50*time.Millisecond)
	}
}

// record records a delivery that ends now.
func (s *sender) record(d delivery) {
	d.end = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

func body(id string) []byte { return fmt.Appendf(nil, `{"id":%q,"amount":100}`, id) }

func (s *sender) attempt(ctx context.Context, id string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url,
		bytes.NewReader(body(id)))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", id)
	response, err := s.client.Do(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return err == nil && response.StatusCode/100 == 2
}

// produce writes messages to the topic. It pauses between them, so that all take about last. A
// message counts as delivered and acknowledged when the broker has it: its consumer must not lose
// it.
func (s *sender) produce(ctx context.Context, o *Options, ids []string, last time.Duration) error {
	client, err := o.Kafka.Open(ctx, "onceward-prove", kgo.DefaultProduceTopic(o.Topic),
		kgo.RecordDeliveryTimeout(30*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	pause := last / time.Duration(len(ids))
	for _, id := range ids {
		_ = backoff.Sleep(ctx, pause)
		d := delivery{id: id, begun: time.Now(), ok: true}
		err := client.ProduceSync(ctx, &kgo.Record{Key: []byte(id), Value: body(id),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}).FirstErr()
		if err != nil {
			return fmt.Errorf("--topic %s: %w", o.Topic,
				server.Unanswered(err, o.Kafka.Brokers...))
		}
		s.record(d)
	}
	return nil
}
