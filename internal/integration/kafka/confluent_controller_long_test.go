//go:build long

package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/internal/servertest"
)

// One of three brokers is killed and stays down. librdkafka's admin client keeps trying to connect
// to the broker that it takes for the controller. So the driver must ask for metadata, which names
// another controller: it commits nothing before it has described the topics. Apache Kafka may name
// any broker as the controller, so eight members make it likely that one of them knows the killed
// one. That broker leads none of the topics: a lost leader would soon bring new metadata.
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
