package kafka_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

const poisonID = "poison"

var errPoison = errors.New("no such account")

// batchShop is a scene in which every batch is one SQL transaction.
type batchShop struct {
	*scene
	ledger *sqlLedger
	parked sync.Map // reason by id; the message without an id has the key ""
	batch  atomic.Int64
}

func newBatchShop(t *testing.T, f flavor, partitions int32) *batchShop {
	t.Helper()
	s := &batchShop{scene: f.scene(t, 3, partitions)}
	s.ledger = s.atomic()
	s.records = func(ids []string) []string {
		return s.ledger.missing(slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			_, ok := s.parked.Load(id)
			return ok
		}))
	}
	return s
}

// moments are hooks of a test. Both may be nil.
type moments struct {
	inside func(link *mortal) // between the effects of a batch and its commit
	after  func()             // between its commit and Kafka
}

func (s *batchShop) joinBatches(at moments) *member {
	s.t.Helper()
	return s.join(nil, func(mc *memberConfig) {
		link := mc.link
		mc.Park = func(_ context.Context, m *kafkaadapter.Message, reason error) error {
			s.parked.Store(m.ID, reason)
			return nil
		}
		mc.Handler, mc.Tuning.BatchMax = nil, 16
		mc.BatchHandler = kafkaadapter.AllOrNothing(func(ctx context.Context,
			ms []*kafkaadapter.Message) error {
			_, err := s.ledger.marks.DoBatch(ctx, s.ledger.write, kafkaadapter.IDs(ms),
				func(ctx context.Context, tx *sql.Tx, first []int) error {
					return s.effects(ctx, tx, link, at, ms, first)
				})
			if err == nil && at.after != nil {
				at.after()
			}
			return err
		})
	})
}

// effects writes the effects of a batch. If the process dies meanwhile, they are not committed.
func (s *batchShop) effects(ctx context.Context, tx *sql.Tx, link *mortal, at moments,
	ms []*kafkaadapter.Message, first []int) error {
	s.batch.Store(max(s.batch.Load(), int64(len(first))))
	for _, i := range first {
		m := ms[i]
		const insert = "INSERT INTO effects (id, key, part, pos) VALUES (?, ?, ?, ?)"
		if _, err := tx.ExecContext(ctx, insert, m.ID, string(m.Key), m.Partition,
			m.Offset); err != nil {
			return err
		}
		if m.ID == poisonID {
			return dedup.Permanent(errPoison)
		}
	}
	if at.inside != nil {
		at.inside(link)
	}
	done, alive := link.reach()
	defer done()
	if !alive {
		return errDead
	}
	return nil
}

// produceTwice sends n messages of five keys to both partitions. It also sends one to each that can
// never be processed: one always fails, and the other has no id.
func (s *batchShop) produceTwice(n int) {
	var all []record
	for i := range n {
		for p := range int32(2) {
			all = append(all, record{id: idOf(i), partition: p, key: fmt.Sprint(i % 5),
				value: []byte("x")})
		}
		if i == n/2 {
			all = append(all, record{id: poisonID, partition: 0, key: "1"},
				record{partition: 1, key: "1", headers: []header{}})
		}
	}
	s.produce(all...)
}

// wantBatches requires one effect of everything but the poison, which is parked.
func (s *batchShop) wantBatches(n int) {
	s.t.Helper()
	s.ledger.load(s.scene)
	for i := range n {
		assert.Equal(s.t, 1, s.effectsOf(idOf(i)), "effects of %s", idOf(i))
	}
	assert.Equal(s.t, n, s.totalEffects(), "effects")
	s.want("out of order", s.disorder())
	s.wantRecorded()
	s.wantNothingLeft()
	for id, reason := range map[string]error{poisonID: errPoison, "": kafkaadapter.ErrNoID} {
		got, _ := s.parked.Load(id)
		if assert.NotNil(s.t, got, "%q was not parked", id) {
			assert.ErrorIs(s.t, got.(error), reason, "why %q was parked", id)
		}
	}
	s.parked.Range(func(id, reason any) bool {
		assert.True(s.t, id == poisonID || id == "", "%v was parked for %v", id, reason)
		return true
	})
	assert.GreaterOrEqual(s.t, s.batch.Load(), int64(2), "there was no batch of several messages")
}

// One transaction for a batch: duplicates in it and across partitions have one effect, and
// what can never be processed is parked without its neighbors. The oracle sees that no
// offset is committed before its transaction.
func TestSQLBatches(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f flavor) {
		const n = batchMessages
		s := newBatchShop(t, f, 2)
		s.produceTwice(n)
		m := s.joinBatches(moments{})
		s.wantCommittedToEnd(30 * time.Second)
		m.leave(t)
		s.wantBatches(n)
	})
}

// The member dies inside the transaction of a batch, and right after its commit.
func TestSQLBatchCrash(t *testing.T) {
	for _, c := range []struct {
		name  string
		after bool // the commit
	}{{"inside", false}, {"after the commit", true}} {
		t.Run(c.name, func(t *testing.T) {
			eachFlavor(t, func(t *testing.T, f flavor) { sqlBatchCrash(t, f, c.after) })
		})
	}
}

func sqlBatchCrash(t *testing.T, f flavor, after bool) {
	const n = batchMessages
	s := newBatchShop(t, f, 2)
	// the crash comes before any commit of offsets
	refused := s.cluster.Fault(commitFault(kerr.NotCoordinator, -1))
	s.produceTwice(n)
	var batches atomic.Int64
	reached, crashed := make(chan string, 1), make(chan struct{})
	crash := sync.OnceFunc(func() { reached <- "here" })
	at := moments{inside: func(link *mortal) {
		if batches.Add(1) > 5 && !after {
			link.kill()
			crash()
		}
	}}
	if after {
		at.after = func() {
			if batches.Load() > 5 {
				crash()
				<-crashed
			}
		}
	}
	first := s.joinBatches(at)
	waitFor(t, reached, "the member did not get so far")
	first.crash()
	close(crashed)
	s.gone()
	refused.Remove()
	assert.NotEqual(t, len(s.ids()), len(s.ledger.missing(s.ids())),
		"nothing was committed before the crash: nothing was delivered again")
	second := s.joinBatches(moments{})
	s.wantCommittedToEnd(30 * time.Second)
	second.leave(t)
	s.wantBatches(n)
}
