package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/contrib/telemetry/kafkatrace"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

// tracedPartitions is how many partitions the topic of a story has.
const tracedPartitions = 2

// tracedStory is a topic, a group and their records, and the spans of all who take part.
type tracedStory struct {
	*traces
	cfg workerConfig
}

// TestTraces checks what docs/reference/telemetry.md promises of the spans of messages on Kafka and
// Redis.
func TestTraces(t *testing.T) {
	for name, story := range map[string]func(*tracedStory){
		"retries": (*tracedStory).retries,
		"killed":  (*tracedStory).killed,
		"batches": (*tracedStory).batches,
		"revoked": (*tracedStory).revoked,
		"fenced":  (*tracedStory).fenced,
	} {
		for _, client := range []string{"sarama", "franz"} {
			t.Run(name+"/"+client, func(t *testing.T) {
				t.Parallel()
				brokers, addr := servertest.Kafka(t), servertest.Redis(t)
				prefix := servertest.Prefix(t)
				t.Cleanup(func() { unlinkAll(t, addr, prefix) })
				s := &tracedStory{
					traces: &traces{t: t, group: prefix + "_group", sent: map[string]string{}},
					cfg: workerConfig{Brokers: brokers, Group: prefix + "_group", Topic: prefix,
						Prefix: prefix, Client: client, Redis: addr},
				}
				createTopic(t, brokers, s.cfg.Topic, tracedPartitions, 1)
				story(s)
			})
		}
	}
}

func unlinkAll(t *testing.T, addr, prefix string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	ctx := context.WithoutCancel(t.Context())
	for keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator(); keys.Next(ctx); {
		client.Unlink(ctx, keys.Val())
	}
}

// send sends messages to a partition. Each is below a producer's span, which s.sent names "send"
// and the id. The message's id, key and value contain the word "secret".
func (s *tracedStory) send(partition int32, ids ...string) {
	s.t.Helper()
	tracer, err := kafkatrace.New(noop.NewTracerProvider(), kafkatrace.Config{Name: "producer"})
	require.NoError(s.t, err)
	all := make([]*sarama.ProducerMessage, len(ids))
	for i, id := range ids {
		ctx, span := sdk.NewTracerProvider().Tracer("producer").Start(s.t.Context(), "send")
		span.End()
		s.mu.Lock()
		s.sent[idOfSpan(span.SpanContext())] = "send " + id
		s.mu.Unlock()
		headers := []header{{"message-id", []byte(secretID(id))}}
		for _, h := range tracer.Headers(ctx) {
			headers = append(headers, header{h.Key, h.Value})
		}
		all[i] = record{partition: partition, key: "secret key " + id, value: []byte("secret"),
			headers: headers}.message(s.cfg.Topic)
	}
	p := newProducer(s.t, s.cfg.Brokers)
	require.NoError(s.t, errors.Join(p.SendMessages(all), p.Close()))
}

// secretID returns the id of the message for a name. Names that differ only from the dash on stand
// for copies of one message.
func secretID(name string) string {
	id, _, _ := strings.Cut(name, "-")
	return "evt_secret_" + id
}

// join runs a member in this process, until the returned function is called, or the test ends.
func (s *tracedStory) join(by string, change func(*tracedMember)) (leave func()) {
	s.t.Helper()
	m := &tracedMember{workerConfig: s.cfg, tell: s.tell,
		handle: func(context.Context, *kafkaadapter.Message) error { return nil }}
	m.By = by
	change(m)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.run(ctx) }()
	leave = sync.OnceFunc(func() {
		cancel()
		err := <-done
		assert.True(s.t, err == nil || m.failed != nil, "%s: %v", by, err)
	})
	s.t.Cleanup(leave)
	return leave
}

// spawn starts a process.
func (s *tracedStory) spawn(by string, change func(*workerConfig)) *process {
	s.t.Helper()
	cfg := s.cfg
	cfg.By = by
	change(&cfg)
	p := spawn(s.t, cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return p
}

// retries: a handler fails twice and then succeeds, and its id is sent again in another partition.
func (s *tracedStory) retries() {
	var runs int
	leave := s.join("a", func(m *tracedMember) {
		// one message, one at a time
		m.handle = func(context.Context, *kafkaadapter.Message) error {
			if runs++; runs < 3 {
				return errors.New("no account secret")
			}
			return nil
		}
	})
	s.send(0, "1")
	s.await("record", "0@0", "a")
	s.send(1, "1-again")
	s.await("skip", "1@0", "a")
	leave()
	s.want(
		`internal claim 0@0 by a below send 1 links []`,
		`consumer process 0@0 by a below claim 0@0 by a links ["send 1"] 1 _OTHER`,
		`consumer process 0@0 by a below send 1 links ["send 1" "claim 0@0 by a"] 2 _OTHER`,
		`consumer process 0@0 by a below send 1 links ["send 1" "claim 0@0 by a"] 3`,
		`internal record 0@0 by a below claim 0@0 by a links [] 3`,
		`internal claim 1@0 by a below send 1-again links []`,
		`internal skip 1@0 by a below claim 1@0 by a links ["claim 0@0 by a"] producer_retry`,
	)
}

// killed: a process dies between an effect and its record, is started again, and is later replaced.
// Each of them gets the id, and the later ones link to the claim of the first.
func (s *tracedStory) killed() {
	static := func(cfg *workerConfig) { cfg.Instance = "pod-1" } // it is back at once
	victim := s.spawn("victim", func(cfg *workerConfig) {
		static(cfg)
		cfg.Hold = true
	})
	s.send(0, "1")
	select {
	case <-victim.holding:
	case err := <-victim.ended:
		s.t.Fatalf("the victim has ended with %v: %s", err, victim.said())
	case <-time.After(slowness * 20 * time.Second):
		s.t.Fatalf("the victim has had no effect: %s", victim.said())
	}
	require.NoError(s.t, victim.cmd.Process.Signal(syscall.SIGKILL))
	<-victim.ended
	heir := s.spawn("heir", static)
	s.await("record", "0@0", "heir")
	s.send(1, "1-again")
	s.await("skip", "1@0", "heir")
	require.NoError(s.t, heir.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, <-heir.ended, "the heir has said %s", heir.said())
	leave := s.join("last", func(m *tracedMember) { static(&m.workerConfig) })
	s.send(1, "1-late")
	s.await("skip", "1@1", "last")
	leave()
	s.want(
		`internal claim 0@0 by victim below send 1 links []`,
		`consumer process 0@0 by victim below claim 0@0 by victim links ["send 1"] 1`,
		`internal claim 0@0 by heir below send 1 links []`,
		`consumer process 0@0 by heir below send 1 links ["send 1" "claim 0@0 by victim"] 2`,
		`internal record 0@0 by heir below claim 0@0 by victim links [] 2`,
		`internal claim 1@0 by heir below send 1-again links []`,
		`internal skip 1@0 by heir below claim 1@0 by heir links ["claim 0@0 by victim"] producer_retry`,
		`internal claim 1@1 by last below send 1-late links []`,
		`internal skip 1@1 by last below claim 1@1 by last links ["claim 0@0 by victim"] producer_retry`,
	)
}

// batches: the span of a batch has a link for each of its messages, and a message that has failed
// comes in a batch of its own. How many batches there are at first depends on the brokers.
func (s *tracedStory) batches() {
	const often, bad = 4, "0@1"
	ids := []string{"1", "2", "3", "4"}
	s.send(0, ids...)
	var mu sync.Mutex
	runs, shared := 0, false // shared: the first run was in a batch with others
	leave := s.join("a", func(m *tracedMember) {
		m.batch = func(_ context.Context, ms []*kafkaadapter.Message) []error {
			errs := make([]error, len(ms))
			mu.Lock()
			defer mu.Unlock()
			if i := slices.IndexFunc(ms, func(m *kafkaadapter.Message) bool {
				return m.ID == secretID("2")
			}); i >= 0 {
				if runs++; runs < often {
					errs[i] = errors.New("no account secret")
				}
				shared = shared || runs == 1 && len(ms) > 1
			}
			return errs
		}
	})
	for i := range ids {
		s.await("record", fmt.Sprint("0@", i), "a")
	}
	leave()
	s.wantSound()
	want := []string{"0@0 1: send 1", "0@2 1: send 3", "0@3 1: send 4"}
	for run := range often {
		attempt := run + 1
		if shared && run > 0 {
			attempt-- // the first one does not count
		}
		want = append(want, fmt.Sprintf("%s %d: send 2", bad, attempt))
		if attempt > 1 {
			want = append(want, fmt.Sprintf("%s %d: claim %s", bad, attempt, bad))
		}
	}
	slices.Sort(want)
	assert.Equal(s.t, want, s.batchLinks(bad), "the links of batches")
}

// batchLinks returns the links of all batches, sorted. Each names a message, its attempt, and what
// it is linked to. It checks that a batch has all of its messages, and has failed only with the bad
// one.
func (s *tracedStory) batchLinks(bad string) (all []string) {
	s.t.Helper()
	ended, _ := s.spans()
	names := map[string]string{}
	for _, span := range ended {
		names[span.ID] = span.operation() + " " + span.at()
	}
	s.mu.Lock()
	maps.Copy(names, s.sent)
	s.mu.Unlock()
	for _, span := range ended {
		if span.operation() != "process" {
			continue
		}
		of := map[string]bool{}
		for _, l := range span.Links {
			at := "0@" + l.Attributes["messaging.kafka.offset"]
			of[at] = true
			all = append(all, fmt.Sprintf("%s %s: %s", at, l.Attributes["onceward.attempt"],
				names[l.To]))
		}
		assert.Equal(s.t, strconv.Itoa(len(of)), span.Attributes["messaging.batch.message_count"])
		assert.Empty(s.t, span.Parent, "the parent of a batch of %d", len(of))
		assert.True(s.t, span.Status != "Error" || of[bad], "the batch of %v has failed", of)
	}
	slices.Sort(all)
	return all
}

// revoked: a rebalance takes a partition away while a handler runs, and the handler's span ends.
func (s *tracedStory) revoked() {
	var begun sync.Map
	stay := make(chan struct{})
	leave := s.join("a", func(m *tracedMember) {
		m.handle = func(ctx context.Context, msg *kafkaadapter.Message) error {
			if _, again := begun.LoadOrStore(msg.Partition, true); again {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-stay:
				return nil
			}
		}
	})
	s.send(0, "0")
	s.send(1, "1")
	s.awaitRunning("process", "0@0", "a")
	s.awaitRunning("process", "1@0", "a")
	others := s.join("b", func(*tracedMember) {})
	var moved int
	eventually(s.t, 20*time.Second, func() (bool, string) {
		ended, _ := s.spans()
		moved = min(1, count(ended, "record", "1@0", "b"))
		return moved+count(ended, "record", "0@0", "b") > 0, strings.Join(s.described(ended), "\n")
	})
	close(stay)
	s.await("record", fmt.Sprint(1-moved, "@0"), "")
	others()
	leave()
	s.wantSound()
	ended, _ := s.spans()
	got := s.described(ended)
	for _, want := range []string{
		`internal claim %[1]d@0 by a below send %[1]d links []`,
		`consumer process %[1]d@0 by a below claim %[1]d@0 by a links ["send %[1]d"] 1 cancelled`,
		`internal claim %[1]d@0 by b below send %[1]d links []`,
		// An attempt that was cut short does not count, so this is the first one.
		`consumer process %[1]d@0 by b below claim %[1]d@0 by b links ["send %[1]d"] 1`,
		`internal record %[1]d@0 by b below claim %[1]d@0 by b links [] 1`,
	} {
		assert.Contains(s.t, got, fmt.Sprintf(want, moved))
	}
}

// fenced: a message is on record, but its commit is refused, because another member has taken the
// instance id. The message is redelivered to that member, and is a duplicate.
func (s *tracedStory) fenced() {
	refused, returns := make(chan error, 1), make(chan struct{})
	static := func(m *tracedMember) { m.Instance = "pod-1" }
	leave := s.join("a", func(m *tracedMember) {
		static(m)
		m.unheard = true
		m.handle = func(context.Context, *kafkaadapter.Message) error {
			<-returns
			return nil
		}
		m.failed = func(err error) {
			select {
			case refused <- err:
			default:
			}
		}
	})
	s.send(0, "1")
	s.awaitRunning("process", "0@0", "a")
	others := s.join("b", static)
	s.await("claim", "0@0", "b")
	close(returns)
	select {
	case err := <-refused:
		assert.True(s.t,
			errors.Is(err, sarama.ErrFencedInstancedId) || errors.Is(err, kerr.FencedInstanceID),
			"the commit has failed with %v", err)
	case <-time.After(slowness * 20 * time.Second):
		s.t.Fatal("no commit has failed")
	}
	s.await("skip", "0@0", "b")
	leave()
	others()
	s.want(
		`internal claim 0@0 by a below send 1 links []`,
		`consumer process 0@0 by a below claim 0@0 by a links ["send 1"] 1`,
		`internal record 0@0 by a below claim 0@0 by a links [] 1`,
		`internal claim 0@0 by b below send 1 links []`,
		`internal skip 0@0 by b below claim 0@0 by b links ["claim 0@0 by a"] broker_redelivery`,
	)
}
