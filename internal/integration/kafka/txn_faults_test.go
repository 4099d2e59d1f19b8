package kafka_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever a broker answers to a request of a transaction, the output of every input is
// visible once, and the committed offsets match the visible outputs.
func TestStreamedThroughEveryFault(t *testing.T) {
	for _, row := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		// sarama tries these again.
		{kmsg.InitProducerID, kerr.ConcurrentTransactions},
		{kmsg.InitProducerID, kerr.NotCoordinator},
		{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions},
		{kmsg.AddPartitionsToTxn, kerr.CoordinatorLoadInProgress},
		{kmsg.Produce, kerr.NotLeaderForPartition},
		{kmsg.AddOffsetsToTxn, kerr.ConcurrentTransactions},
		{kmsg.AddOffsetsToTxn, kerr.CoordinatorNotAvailable},
		{kmsg.TxnOffsetCommit, kerr.NotCoordinator},
		{kmsg.TxnOffsetCommit, kerr.RequestTimedOut}, // still applied
		{kmsg.EndTxn, kerr.CoordinatorLoadInProgress},
		{kmsg.EndTxn, kerr.ConcurrentTransactions},
		// These end in an abort.
		{kmsg.TxnOffsetCommit, kerr.IllegalGeneration},
		{kmsg.TxnOffsetCommit, kerr.UnknownMemberID},
		{kmsg.Produce, kerr.InvalidProducerEpoch},
		{kmsg.Produce, kerr.TransactionAbortable},
		// These cost the producer.
		{kmsg.InitProducerID, kerr.ProducerFenced},
		{kmsg.AddPartitionsToTxn, kerr.ProducerFenced},
		{kmsg.AddPartitionsToTxn, kerr.InvalidTxnState},
		{kmsg.AddOffsetsToTxn, kerr.ProducerFenced},
		{kmsg.TxnOffsetCommit, kerr.TransactionAbortable},
		{kmsg.TxnOffsetCommit, kerr.InvalidProducerEpoch},
		{kmsg.EndTxn, kerr.InvalidProducerEpoch},
		{kmsg.EndTxn, kerr.ProducerFenced},
		{kmsg.EndTxn, kerr.TransactionAbortable},
		// And these come when a producer is replaced.
		{kmsg.OffsetFetch, kerr.UnstableOffsetCommit},
		{kmsg.OffsetFetch, kerr.NotCoordinator},
		{kmsg.Heartbeat, kerr.CoordinatorNotAvailable},
	} {
		t.Run(fmt.Sprint(row.key.Name(), "/", row.err.Message), func(t *testing.T) {
			t.Parallel()
			c := embeddedNodes(t, 1)
			s := newTxnFixture(t, c.ListenAddrs(), "", 2)
			s.produce(200)
			var seen atomic.Int64 // requests: the first, the fourth and the fifth fail
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{row.key}, Err: row.err,
				Count: 3, When: func(kmsg.Request) bool {
					n := seen.Add(1)
					return n == 1 || n == 4 || n == 5
				}})
			m := s.join()
			s.wantCommittedToEnd(20 * time.Second)
			m.leave(t)
			s.wantOutputOnce()
			assert.NotZero(t, h.Hits(), "the fault did not come")
			t.Logf("%d faults: %s", h.Hits(), s.failures())
		})
	}
}
