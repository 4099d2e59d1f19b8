//go:build long

package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/internal/servertest"
)

// One of three brokers goes away for good. librdkafka's admin client waits for the broker that it
// takes for the controller, and connects to it without a pause, so the driver must bring it to
// another one: without a look at the topics nothing is committed. Apache Kafka calls any broker the
// controller, so one or more of eight members know the one that goes. It leads none of
// the topics: the loss of a leader would bring new metadata soon.
func TestConfluentCommitsWithoutABroker(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindKafka3)
	var readers []*logReader
	for i := range 8 {
		r := newLogReader(t, "confluent", server.Addrs, fmt.Sprint("orders", i))
		topicOn(t, r.brokers, r.topic, []int32{1, 2}, nil)
		defer r.start()()
		readers = append(readers, r)
	}
	for _, r := range readers {
		send(t, r.brokers, r.topic, idsFrom(0, 10))
		r.wantHandled(20*time.Second, idsFrom(0, 10), 10)
	}
	server.Kill(3)
	for _, r := range readers {
		send(t, r.brokers, r.topic, idsFrom(10, 10))
	}
	for _, r := range readers {
		r.wantHandled(10*time.Second, idsFrom(10, 10), 20)
	}
}
