package drivertest

import (
	"context"
	"sync/atomic"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// A partition with too many messages in flight is paused, which Progress reports, and others go on.
func pause(s *scene) {
	s.topic(orders, 2)
	g := newGateway()
	paused := make(chan bool, 100)
	m := s.join(g.only(func(m *kafkaadapter.Message) bool { return m.Partition == 0 }),
		func(m *Member) {
			m.FetchBytes = 4 << 10
			c := &m.Config
			c.Tuning.HighWater, c.Tuning.LowWater, c.Tuning.Workers = 100, 50, 4
			c.Observer.Paused = func(_ string, p int32, on bool) {
				if p == 0 {
					paused <- on
				}
			}
		})
	for i := range 20 { // batches that are small against what may be in flight
		s.produce(0, 50*i, 50)
		s.produce(1, 1000+50*i, 50)
	}
	assert.True(s, <-paused, "resumed first")
	s.affected(1000) // of the other partition
	all := m.consumer.Progress()
	require.Len(s, all, 2)
	assert.True(s, all[0].Backlogged)
	assert.Zero(s, all[0].Oldest)
	assert.GreaterOrEqual(s, all[0].InFlight, 100)
	assert.Less(s, all[0].InFlight, 1000)
	close(g.open)
	s.committed()
	assert.False(s, <-paused, "paused twice")
	all = m.consumer.Progress()
	require.Len(s, all, 2)
	assert.Zero(s, all[0].Lag)
	assert.EqualValues(s, 1000, all[0].Watermark)
	m.leave()
	assert.Empty(s, m.consumer.Progress(), "after Run")
	s.once(2000)
}

// A hook may ask for Progress while partitions come and are committed.
func progressInHooks(s *scene) {
	s.topic(orders, 4)
	for p := range int32(4) {
		s.produce(p, int(p)*10, 10)
	}
	var asked atomic.Pointer[member]
	ask := func() {
		if m := asked.Load(); m != nil {
			m.consumer.Progress()
		}
	}
	m := s.join(nil, configured(func(c *kafkaadapter.Config) {
		c.Observer.Assigned = func(string, int32, int32) { s.note("assigned"); ask() }
		c.Observer.Committing = func(string, int32, int64) { ask() }
		c.Observer.Committed = func(string, int32, int64) { ask() }
		c.Observer.Revoked = func(string, int32, int, int) { ask() }
	}))
	asked.Store(m)
	s.committed()
	other := s.join(nil)
	s.members(2)
	other.leave()
	s.eventually(func() (bool, string) {
		return s.noted("assigned") >= 6, "the partitions have not come back"
	})
	m.leave()
	s.once(40)
}

// A second Run is refused while the first one works; after it, another one works.
func runOnce(s *scene) {
	s.topic(orders, 1)
	running := make(chan struct{}, 2)
	m, _ := s.newMember(func(context.Context, *kafkaadapter.Message) error {
		running <- struct{}{}
		return nil
	})
	for i := range 2 {
		ctx, cancel := context.WithCancel(s.Context())
		go func() { m.done <- m.consumer.Run(ctx) }()
		s.produce(0, i, 1)
		<-running
		require.ErrorIs(s, m.consumer.Run(ctx), kafkaadapter.ErrRunning, "a second Run")
		cancel()
		require.NoError(s, m.wait(), "Run")
	}
	s.committed()
	s.once(2)
}

// The records of a partition are held up on their way to the store, while another partition is
// committed.
func heldRecord(s *scene) {
	s.topic(orders, 2)
	release := make(chan struct{})
	m := s.join(nil, func(m *Member) {
		l := &link{Store: s.store, before: func(changes []driver.Finish) {
			for _, c := range changes {
				if c.Origin.Partition == 0 {
					<-release
				}
			}
		}}
		m.Config.Deduper = s.deduper(l)
	})
	s.produce(0, 0, 5)
	s.affected(5)
	s.produce(1, 5, 50)
	s.eventually(func() (bool, string) {
		to, _ := s.cluster.Committed(group, orders, 1)
		return to == 50, "the other partition is not committed"
	})
	to, _ := s.cluster.Committed(group, orders, 0)
	assert.LessOrEqual(s, to, int64(0), "committed before the records")
	close(release)
	s.committed()
	m.leave()
	s.once(55)
}

// The store is down when handlers return. Messages that come then do not run. When the store is
// back, everything is recorded and committed, and nothing runs twice.
func outage(s *scene) {
	s.topic(orders, 1)
	g := newGateway()
	s.produce(0, 0, 3)
	m := s.join(g.handle)
	s.eventually(func() (bool, string) { return g.running() == 3, "nothing runs" })
	m.link.set(true)
	close(g.open)
	s.affected(3)
	s.produce(0, 3, 20)
	s.eventually(func() (bool, string) { return m.link.lost() >= 6, "no record is tried again" })
	assert.Equal(s, 3, s.totalEffects(), "effects during the outage")
	to, _ := s.cluster.Committed(group, orders, 0)
	assert.LessOrEqual(s, to, int64(0), "committed without records")
	m.link.set(false)
	s.committed()
	m.leave()
	s.once(23)
}
