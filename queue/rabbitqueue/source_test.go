package rabbitqueue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/rabbitqueue"
)

func refuse() (*amqp.Connection, error) { return nil, errCut }

func TestNewNamesTheBadOption(t *testing.T) {
	for field, change := range map[string]func(*rabbitqueue.Options){
		"Queue":       func(o *rabbitqueue.Options) { o.Queue = "" },
		"Dial":        func(o *rabbitqueue.Options) { o.Dial = nil },
		"Prefetch":    func(o *rabbitqueue.Options) { o.Prefetch = 1 << 16 },
		"DeadLetters": func(o *rabbitqueue.Options) { o.DeadLetters = o.Queue },
	} {
		opts := rabbitqueue.Options{Queue: "orders", Dial: refuse}
		change(&opts)
		_, err := rabbitqueue.New(opts)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "rabbitqueue.Options."+field, input.Field)
	}
}

// counted are the headers of a quorum queue.
func counted(before int64) amqp.Table { return amqp.Table{"x-delivery-count": before} }

func TestDeliveryOfAMessage(t *testing.T) {
	src, err := rabbitqueue.New(rabbitqueue.Options{Queue: "orders", Dial: refuse})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		m    amqp.Delivery
		want int
	}{
		"first":                   {amqp.Delivery{}, 1},
		"again, classic queue":    {amqp.Delivery{Redelivered: true}, 2},
		"again, quorum queue":     {amqp.Delivery{Headers: counted(4)}, 5},
		"first of a quorum queue": {amqp.Delivery{Headers: counted(0)}, 1},
	} {
		c.m.MessageId, c.m.Body = "order-1", []byte("body")
		d := src.Delivery(&c.m)
		assert.Equal(t, c.want, d.Deliveries, name)
		assert.Equal(t, "order-1", d.ID)
		assert.Equal(t, "orders", d.Scope)
		assert.Equal(t, "body", string(d.Payload))
		assert.Same(t, &c.m, d.Raw)
		assert.Nil(t, d.Park)
	}
	assert.Empty(t, src.Delivery(&amqp.Delivery{MessageId: ""}).ID)
}

// Fetch does not hang when the broker cannot be reached, or does not answer.
func TestFetchWithoutABroker(t *testing.T) {
	src, err := rabbitqueue.New(rabbitqueue.Options{Queue: "orders", Dial: refuse})
	require.NoError(t, err)
	_, err = src.Fetch(t.Context(), 1)
	require.ErrorIs(t, err, errCut)
	assert.False(t, dedup.IsPermanent(err), "the broker may come back")

	hangs := make(chan struct{})
	late := time.AfterFunc(10*time.Second, func() { close(hangs) })
	src, err = rabbitqueue.New(rabbitqueue.Options{Queue: "orders",
		Dial: func() (*amqp.Connection, error) {
			<-hangs
			return nil, errCut
		}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = src.Fetch(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, late.Stop(), "Fetch waited for the dial")
	close(hangs)
	src.Close()
	src.Close()
	_, err = src.Fetch(t.Context(), 1)
	assert.True(t, dedup.IsPermanent(err), "the source is closed: %v", err)
}

// Two consumers may share a source. Both get the error of a failed dial.
func TestFetchesShareADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan struct{})
		src, err := rabbitqueue.New(rabbitqueue.Options{Queue: "orders",
			Dial: func() (*amqp.Connection, error) {
				<-dials
				return nil, errCut
			}})
		require.NoError(t, err)
		defer src.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := src.Fetch(ctx, 1)
				errs <- err
			}()
		}
		synctest.Wait()
		close(dials)
		for range 2 {
			require.ErrorIs(t, <-errs, errCut)
		}
	})
}

func TestRabbitMQ(t *testing.T) {
	s := servertest.Private(t, servertest.KindRabbitMQ)
	for name, test := range map[string]func(*testing.T, string){
		"gone": testGone, "nack": testNack, "dead letter": testDeadLetter,
		"dead letter taken by no queue": testLostLetter, "close": testClose,
	} {
		t.Run(name, func(t *testing.T) { test(t, s.Addr) })
	}
	t.Run("close while the broker hangs", func(t *testing.T) { testCloseHangs(t, s) })
}

// Close closes two connections. If the broker does not answer, it waits once for both.
func testCloseHangs(t *testing.T, s *servertest.Server) {
	name := servertest.Prefix(t)
	src, look := source(t, s.Addr, rabbitqueue.Options{Queue: name, DeadLetters: name + "-dead"},
		amqp.Publishing{MessageId: "order-1"})
	look.declare(t, name+"-dead")
	require.NoError(t, fetchOne(t, src).Park(t.Context(), errCut))
	s.Stop(1)
	defer s.Cont(1)
	began := time.Now()
	src.Close()
	assert.Less(t, time.Since(began), 9*time.Second, "five seconds are for both connections")
}

// source is that of a new queue with one message.
func source(t *testing.T, url string, opts rabbitqueue.Options,
	m amqp.Publishing) (*rabbitqueue.Source, *looker) {
	t.Helper()
	look := &looker{url: url}
	look.declare(t, opts.Queue)
	look.send(t, opts.Queue, m)
	opts.Dial = func() (*amqp.Connection, error) { return amqp.Dial(url) }
	src, err := rabbitqueue.New(opts)
	require.NoError(t, err)
	t.Cleanup(src.Close)
	return src, look
}

func fetchOne(t *testing.T, src queue.Source) *queue.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	ds, err := src.Fetch(ctx, 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	return ds[0]
}

// A queue that does not exist is not asked forever, also when it is deleted later.
func testGone(t *testing.T, url string) {
	name := servertest.Prefix(t)
	src, look := source(t, url, rabbitqueue.Options{Queue: name}, amqp.Publishing{MessageId: "1"})
	fetchOne(t, src)
	_, err := look.channel(t).QueueDelete(name, false, false, false)
	require.NoError(t, err)
	_, err = src.Fetch(t.Context(), 1)
	require.ErrorContains(t, err, "the subscription has ended")
	assert.False(t, dedup.IsPermanent(err), "it may have moved to another node")
	_, err = src.Fetch(t.Context(), 1)
	assert.True(t, dedup.IsPermanent(err), "%v", err)
}

// A message that is not done is redelivered after its time, and not before.
func testNack(t *testing.T, url string) {
	const wait = 300 * time.Millisecond
	src, _ := source(t, url, rabbitqueue.Options{Queue: servertest.Prefix(t)},
		amqp.Publishing{MessageId: "1"})
	require.NoError(t, fetchOne(t, src).Nack(t.Context(), 0))
	d := fetchOne(t, src)
	assert.Equal(t, 2, d.Deliveries)
	began := time.Now()
	require.NoError(t, d.Nack(t.Context(), wait))
	d = fetchOne(t, src)
	assert.GreaterOrEqual(t, time.Since(began), wait)
	assert.Equal(t, 3, d.Deliveries)
	require.NoError(t, d.Ack(t.Context()))
}

// A dead letter is the message with its headers and properties, but for what RabbitMQ would act on.
func testDeadLetter(t *testing.T, url string) {
	name := servertest.Prefix(t)
	dead, copied := name+"-dead", name+"-copied"
	src, look := source(t, url, rabbitqueue.Options{Queue: name, DeadLetters: dead},
		amqp.Publishing{MessageId: "order-1", ContentType: "text/plain", Expiration: "60000",
			Headers: amqp.Table{"tenant": "a", "x-death": "old"}, Body: []byte("body")})
	look.declare(t, dead)
	look.declare(t, copied)
	d := fetchOne(t, src)
	d.Raw.(*amqp.Delivery).Headers["CC"] = []any{copied}
	require.NoError(t, d.Park(t.Context(), errors.New("no\nsuch  account")))
	m, ok, err := look.channel(t).Get(dead, true)
	require.NoError(t, err)
	require.True(t, ok)
	delete(m.Headers, "x-delivery-count") // of the queue of letters
	assert.Equal(t, amqp.Table{"tenant": "a", rabbitqueue.HeaderID: "order-1",
		rabbitqueue.HeaderScope: name, rabbitqueue.HeaderError: "no such account"}, m.Headers)
	assert.Equal(t, "order-1", m.MessageId)
	assert.Equal(t, "text/plain", m.ContentType)
	assert.Empty(t, m.Expiration, "a letter does not expire")
	assert.Equal(t, "body", string(m.Body))
	assert.Zero(t, look.ready(t, copied))
}

// Park fails while no queue takes the letter, and succeeds once there is one.
func testLostLetter(t *testing.T, url string) {
	name := servertest.Prefix(t)
	src, look := source(t, url, rabbitqueue.Options{Queue: name, DeadLetters: name + "-dead"},
		amqp.Publishing{MessageId: "order-1"})
	d := fetchOne(t, src)
	require.ErrorContains(t, d.Park(t.Context(), errCut), "no queue took a dead letter")
	look.declare(t, name+"-dead")
	require.NoError(t, d.Park(t.Context(), errCut))
	assert.Equal(t, 1, look.ready(t, name+"-dead"))
}

// Messages that are not acknowledged when the source is closed are there for the next one at once,
// also those that wait for their time.
func testClose(t *testing.T, url string) {
	name := servertest.Prefix(t)
	src, _ := source(t, url, rabbitqueue.Options{Queue: name}, amqp.Publishing{MessageId: "1"})
	require.NoError(t, fetchOne(t, src).Nack(t.Context(), time.Hour))
	src.Close()
	next, err := rabbitqueue.New(rabbitqueue.Options{Queue: name,
		Dial: func() (*amqp.Connection, error) { return amqp.Dial(url) }})
	require.NoError(t, err)
	defer next.Close()
	assert.Equal(t, 2, fetchOne(t, next).Deliveries)
}
