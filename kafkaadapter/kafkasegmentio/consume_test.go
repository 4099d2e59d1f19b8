package kafkasegmentio

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// When the caller of a request has left, the answer must not touch the caller's memory. The race
// detector checks that.
func TestAnswerAfterTheCallerHasLeft(t *testing.T) {
	r := newRig(t, 1)
	asked, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	r.cluster.ControlKey(int16(kmsg.Metadata),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if req.GetVersion() == uuidVersion {
				first.Do(func() {
					close(asked)
					r.cluster.SleepControl(func() { <-release })
				})
			}
			return nil, nil, false
		})
	c, err := New(r.cluster.ListenAddrs(), group, []string{orders}, Options{},
		r.config(nil))
	require.NoError(t, err)
	cluster := c.newCluster()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the caller's own steps would be ordered with those of the answer
		<-asked
		cancel()
		close(release)
	}()
	found, err := cluster.lookUp(ctx, []string{orders})
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, found)
	for range 5 { // the answer comes meanwhile; waiting for it would also order it
		runtime.GC()
	}
	found, err = cluster.lookUp(t.Context(), []string{orders})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

// Messages of a transaction that was aborted have no effect; those around it have.
func TestAbortedTransactionsAreInvisible(t *testing.T) {
	r := newRig(t, 1)
	producer := r.newClient(kgo.TransactionalID("tx"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	transact := func(end kgo.TransactionEndTry, ids ...string) {
		require.NoError(t, producer.BeginTransaction())
		for _, id := range ids {
			require.NoError(t, producer.ProduceSync(t.Context(), record(0, id)).FirstErr())
		}
		require.NoError(t, producer.EndTransaction(t.Context(), end))
	}
	r.produce(0, 0, 2)
	transact(kgo.TryAbort, "a", "b")
	transact(kgo.TryCommit, "c")
	r.produce(0, 2, 1)
	transact(kgo.TryAbort, "d")
	transact(kgo.TryAbort, "e")
	transact(kgo.TryCommit, "f", "g")
	r.produce(0, 3, 1)
	last, err := kadm.NewClient(r.client).ListEndOffsets(t.Context(), orders)
	require.NoError(t, err)
	end, _ := last.Lookup(orders, 0)
	r.run(r.config(nil), r.committed(end.Offset))
	r.once(7)
	for _, id := range []string{"a", "b", "d", "e"} {
		assert.Zero(t, r.effects[id], id)
	}
}

// An offset that retention has deleted is reported with its position, and is skipped with
// Allow.Skip. Commits have no leader epoch, because kafka-go does not know it.
func TestRetentionGap(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, 0, 10)
	r.run(r.config(nil), r.committed(10))
	r.produce(0, 10, 10)
	require.NoError(t, r.cluster.DeleteRecords(orders, 0, 15))
	r.run(r.config(nil), func() (bool, string) {
		return len(r.groupErrors()) > 0, "no error is told"
	})
	require.ErrorContains(t, r.groupErrors()[0],
		"orders/0: offset 10: the log does not have it, and begins at 15")
	cfg := r.config(nil)
	cfg.Allow.Skip = true
	r.run(cfg, r.committed(20))
	r.once(15)
	assert.Equal(t, int32(-1), r.cluster.GroupInfo(group).Commits[orders][0].LeaderEpoch)
}
