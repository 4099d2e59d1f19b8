//go:build long

package kafka_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// uncleanTopic makes a topic with replicas on nodes 2 and 3, of which either may lead. If only a
// follower is left that has missed messages, it becomes the leader, and these messages are lost.
func uncleanTopic(t *testing.T, brokers []string, topic string) {
	t.Helper()
	yes, one := "true", "1"
	topicOn(t, brokers, topic, []int32{2, 3}, map[string]*string{
		"unclean.leader.election.enable": &yes, "min.insync.replicas": &one})
}

// An unclean election cuts the log of a reader of each driver: 150 messages are handled and
// committed. Then the last 50 are gone, and other messages come at their offsets.
func TestUncleanTruncation(t *testing.T) {
	server := servertest.Private(t, servertest.KindKafka3)
	var readers []*logReader
	for _, name := range flavorNames() {
		if name == "franz-share" {
			continue // its position is the broker's, which does not go back (Apache Kafka 4.3)
		}
		uncleanTopic(t, server.Addrs, name)
		r := newLogReader(t, name, server.Addrs, name)
		defer r.start()()
		readers = append(readers, r)
	}
	each := func(do func(*logReader)) {
		for _, r := range readers {
			do(r)
		}
	}
	each(func(r *logReader) {
		send(t, server.Addrs, r.topic, idsFrom(0, 100))
		r.wantHandled(30*time.Second, idsFrom(0, 100), 100)
	})
	server.Kill(3)
	each(func(r *logReader) {
		send(t, server.Addrs, r.topic, idsFrom(100, 50))
		r.wantHandled(30*time.Second, idsFrom(100, 50), 150)
	})
	server.Kill(2)
	server.Start(3)
	kept := idsFrom(140, 10) // sent again: these are repetitions
	before := map[*logReader]int{}
	each(func(r *logReader) {
		end := send(t, server.Addrs, r.topic, slices.Concat(idsFrom(1000, 20), kept))
		require.EqualValues(t, 130, end, "%s: the log was not cut", r.topic)
		before[r] = len(r.told())
	})
	server.Start(2)
	pause(context.Background(), 10*time.Second)
	each(func(r *logReader) {
		t.Logf("%s: committed to %d of 130, missing %d of 20; told %d: %v", r.topic, r.committed(),
			len(r.missing(idsFrom(1000, 20))), len(r.told()), last3(r.told()))
		assert.Less(t, len(r.told())-before[r], 200, "%s: a hot loop", r.topic)
	})
	each(func(r *logReader) { send(t, server.Addrs, r.topic, idsFrom(2000, 100)) })
	pause(context.Background(), 10*time.Second)
	each(func(r *logReader) {
		at := r.committed()
		t.Logf("%s: committed to %d of 230, missing %d of 20 and %d of 100", r.topic, at,
			len(r.missing(idsFrom(1000, 20))), len(r.missing(idsFrom(2000, 100))))
		assert.Empty(t, first5(r.missing(slices.Concat(idsFrom(1000, 20), idsFrom(2000, 100)))),
			"%s: messages at offsets that were used before", r.topic)
		assert.EqualValues(t, 230, at, "%s: committed", r.topic)
		assert.NotEmpty(t, r.told(), "%s: nobody was told", r.topic)
		for _, id := range kept {
			assert.Equal(t, 1, r.effects[id], "%s: %s was sent again", r.topic, id)
		}
	})
}

func last3(found []string) []string { return found[max(0, len(found)-3):] }
