package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// soakEnv are the variables that TestSoak reads: the seed of the first run, how many seeds
// in a row, and the time of each run.
const (
	soakSeedEnv  = "ONCEWARD_SOAK_SEED"
	soakSeedsEnv = "ONCEWARD_SOAK_SEEDS"
	soakTimeEnv  = "ONCEWARD_SOAK_TIME"
)

// Everything that the other scenarios do, at random and at once: members crash, freeze,
// leave and join, connections break, leaders and coordinators move, requests fail, keys
// are slow, blocked and broken, the store comes and goes. Nothing is lost and no commit
// runs ahead. At level Atomic no effect is doubled. At level Claimed a crash or a lost lease
// explains each doubled effect.
func TestSoak(t *testing.T) {
	seed, seeds, limit := soakPlan(t)
	for n := range seeds {
		t.Run(fmt.Sprint("seed ", seed+n), func(t *testing.T) {
			for _, level := range []string{"claimed", "atomic"} {
				for _, f := range flavors {
					t.Run(level+" "+f.name, func(t *testing.T) {
						t.Parallel()
						newSoak(t, f, seed+n, level == "atomic").run(limit)
					})
				}
			}
		})
	}
}

func soakPlan(t *testing.T) (seed, seeds uint64, limit time.Duration) {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, name)
		return n
	}
	limit = soakTime
	if text := os.Getenv(soakTimeEnv); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err, soakTimeEnv)
	}
	return number(soakSeedEnv, uint64(time.Now().UnixNano())),
		number(soakSeedsEnv, soakSeeds), limit
}

const soakPartitions, soakKeys = 4, 40

// soak is one run.
type soak struct {
	*scene
	seed    uint64
	rnd     *rand.Rand // of the schedule
	store   *troubledStore
	members []*member
	leaving sync.WaitGroup
	undo    []undo
	happens map[string]int
	ids     int

	runsMu sync.Mutex
	runs   map[string][]run // effects, by id
}

// undo ends a trouble when its time has come.
type undo struct {
	at time.Time
	do func()
}

// run is one run of a handler that had its effect.
type run struct {
	member  *member
	attempt int
	cause   error // why its context had ended by then
}

func newSoak(t *testing.T, f flavor, seed uint64, atomic bool) *soak {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	k := &soak{
		scene: f.scene(t, 3, soakPartitions), seed: seed,
		rnd:     rand.New(rand.NewPCG(seed, h.Sum64())),
		happens: map[string]int{}, runs: map[string][]run{},
	}
	if atomic {
		k.atomic()
	}
	k.store = k.troubled()
	return k
}

// run makes trouble for a time, ends it, and judges.
func (k *soak) run(limit time.Duration) {
	k.t.Helper()
	k.t.Logf("seed %d: %s=%d", k.seed, soakSeedEnv, k.seed)
	k.join()
	k.join()
	for began := time.Now(); time.Since(began) < limit; {
		k.produceSome()
		k.trouble()
		<-time.After(time.Duration(50+k.rnd.IntN(500)) * time.Millisecond)
		k.undoUntil(time.Now())
	}
	k.undoUntil(time.Now().Add(time.Hour))
	if !k.committedWithin(20 * time.Second) {
		k.expelGhosts()
	}
	k.wantCommittedToEnd(60 * time.Second)
	for _, m := range k.members {
		m.leave(k.t)
	}
	k.leaving.Wait()
	k.judge()
}

// committedWithin waits for limit at most, and reports whether everything is committed.
func (k *soak) committedWithin(limit time.Duration) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, _ := k.committedToEnd(); ok {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
}

// expelGhosts removes the members from the group that are not in k.members. If a member's
// connection is gone when the embedded broker answers its SyncGroup, the broker never expires this
// member: it begins to wait for heartbeats only when the answer has arrived. Apache Kafka begins
// before. Such a ghost keeps its partitions forever.
func (k *soak) expelGhosts() {
	k.t.Helper()
	info := k.cluster.GroupInfo(sceneGroup)
	if info == nil {
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.ListenAddrs()...))
	require.NoError(k.t, err)
	defer client.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = sceneGroup
	for _, m := range info.Members {
		if slices.ContainsFunc(k.members, func(alive *member) bool {
			return alive.name == m.ClientID
		}) {
			continue
		}
		ghost := kmsg.NewLeaveGroupRequestMember()
		ghost.MemberID = m.MemberID
		req.Members = append(req.Members, ghost)
	}
	if len(req.Members) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = req.RequestWith(ctx, client)
	require.NoError(k.t, err)
	k.t.Logf("expelled %d ghosts of %d members of a group that is %s", len(req.Members),
		len(info.Members), info.State)
}

// produceSome sends new ids and old ones.
func (k *soak) produceSome() {
	var records []record
	for range 20 + k.rnd.IntN(40) {
		id := k.ids
		if id > 0 && k.rnd.IntN(5) == 0 {
			id = k.rnd.IntN(id)
		} else {
			k.ids++
		}
		key := fmt.Sprint("k", k.rnd.IntN(soakKeys))
		records = append(records, record{id: idOf(id),
			partition: partitionsOf(soakPartitions, k.rnd.IntN(soakPartitions)), key: key,
			value: []byte(key)})
	}
	k.produce(records...)
}

// join adds a member.
func (k *soak) join() {
	var self *member
	joined := make(chan struct{})
	m := k.scene.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		<-joined
		if err := k.work(ctx, m); err != nil {
			return err
		}
		k.runsMu.Lock()
		defer k.runsMu.Unlock()
		k.runs[m.ID] = append(k.runs[m.ID], run{self, m.Attempt, context.Cause(ctx)})
		return nil
	}, func(mc *memberConfig) {
		mc.Tuning.Workers, mc.Tuning.Drain = 8, 300*time.Millisecond
		mc.rebalance = 3500 * time.Millisecond
	})
	self = m
	close(joined)
	k.members = append(k.members, m)
}

// work is what a handler does before its effect. It depends on the seed, the message and
// the attempt.
func (k *soak) work(ctx context.Context, m *kafkaadapter.Message) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.ID))
	rnd := rand.New(rand.NewPCG(k.seed, h.Sum64()+uint64(m.Attempt))) // attempts are small
	var err error
	switch n := rnd.IntN(1000); {
	case n < 3: // blocked, and deaf
		<-time.After(time.Second + time.Duration(rnd.IntN(500))*time.Millisecond)
	case n < 20:
		err = backoff.Sleep(ctx, time.Duration(50+rnd.IntN(150))*time.Millisecond)
	case n < 40:
		return errors.New("not this time")
	case n < 45:
		panic("boom")
	default:
		err = backoff.Sleep(ctx, time.Duration(rnd.IntN(3))*time.Millisecond)
	}
	return err
}

// trouble is the next step of the schedule.
func (k *soak) trouble() {
	steps := []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}}, {"nothing", func() {}}, {"nothing", func() {}},
		{"nothing", func() {}},
		{"crash", k.crash}, {"freeze", k.freeze}, {"restart", k.restart}, {"join", k.join},
		{"leave", k.leave}, {"cut connections", func() { k.any().dialer.hiccup() }},
		{"move leaders", k.cluster.ShufflePartitionLeaders},
		{"move coordinators", k.cluster.RehashCoordinators},
		{"requests fail", k.failRequests}, {"commits fail", k.failCommits},
		{"store trouble", k.storeTrouble},
	}
	step := steps[k.rnd.IntN(len(steps))]
	k.happens[step.name]++
	step.do()
	for len(k.members) < 2 {
		k.join()
	}
	for len(k.members) > 3 {
		k.leave()
	}
}

func (k *soak) any() *member { return k.members[k.rnd.IntN(len(k.members))] }

// take removes a random member from k.members.
func (k *soak) take() *member {
	i := k.rnd.IntN(len(k.members))
	m := k.members[i]
	k.members = append(k.members[:i], k.members[i+1:]...)
	return m
}

// crash cuts a member off. Its handlers run on, as if only its network had died.
func (k *soak) crash() { k.take().crash() }

func (k *soak) freeze() {
	m := k.take()
	thaw := m.freeze()
	k.later(2500, func() {
		thaw()
		m.abandon()
	})
}

func (k *soak) restart() {
	k.leave()
	k.join()
}

func (k *soak) leave() {
	m := k.take()
	k.leaving.Go(func() { m.leave(k.t) })
}

func (k *soak) failRequests() {
	faults := []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.Fetch, kerr.NotLeaderForPartition}, {kmsg.Fetch, kerr.UnknownServerError},
		{kmsg.Fetch, kerr.OffsetNotAvailable},
		{kmsg.Heartbeat, kerr.NotCoordinator}, {kmsg.Heartbeat, kerr.UnknownMemberID},
		{kmsg.Heartbeat, kerr.IllegalGeneration},
		{kmsg.OffsetFetch, kerr.CoordinatorLoadInProgress},
		{kmsg.JoinGroup, kerr.CoordinatorNotAvailable},
	}
	f := faults[k.rnd.IntN(len(faults))]
	handle := k.fault(f.key, f.err, 1+k.rnd.IntN(4))
	k.later(1000, handle.Remove)
}

func (k *soak) failCommits() {
	errs := []*kerr.Error{
		kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress,
		kerr.RequestTimedOut,
		kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID,
	}
	handle := k.cluster.Fault(commitFault(errs[k.rnd.IntN(len(errs))], 1+k.rnd.IntN(6)))
	k.later(1000, handle.Remove)
}

// storeTrouble lasts 1.5 s at most. A lease lasts 1 s.
func (k *soak) storeTrouble() {
	troubles := []trouble{{refuse: errGone}, {lose: errGone}, {delay: 50 * time.Millisecond}}
	k.store.set(troubles[k.rnd.IntN(len(troubles))])
	k.later(1500, func() { k.store.set(trouble{}) })
}

// later plans the call of do, at a random time, in at most that many milliseconds.
func (k *soak) later(most int, do func()) {
	k.undo = append(k.undo,
		undo{time.Now().Add(time.Duration(k.rnd.IntN(most)) * time.Millisecond), do})
}

func (k *soak) undoUntil(now time.Time) {
	rest := k.undo[:0]
	for _, u := range k.undo {
		if u.at.After(now) {
			rest = append(rest, u)
			continue
		}
		u.do()
	}
	k.undo = rest
}

// judge asks the oracles, when all members are gone.
func (k *soak) judge() {
	k.t.Helper()
	wantNoGoroutines(k.t) // zombies had their last effects
	if k.ledger != nil {
		k.ledger.load(k.scene)
		k.wantOnce()
	} else {
		k.wantExplained()
	}
	k.want("out of order", k.disorder())
	k.wantRecorded()
	k.wantNothingLeft()
	k.oracle.mu.Lock()
	defer k.oracle.mu.Unlock()
	k.t.Logf("%d ids, %d effects, %d commits in %d generations; %v", k.ids, len(k.order),
		k.oracle.commits, len(k.oracle.generations), k.happens)
}

// wantExplained requires an effect of every id. Of several effects at most one may be on record:
// the members of the others died, or lost the lease, before they recorded them.
func (k *soak) wantExplained() {
	k.t.Helper()
	reasons := map[string]int{}
	k.runsMu.Lock()
	defer k.runsMu.Unlock()
	for _, id := range k.scene.ids() {
		runs := k.runs[id]
		if !assert.NotEmpty(k.t, runs, "%s had no effect", id) {
			continue
		}
		var unexplained int
		for _, r := range runs {
			why := r.unrecorded(id)
			if why == "" {
				unexplained++
			} else if len(runs) > 1 {
				reasons[why]++
			}
		}
		if unexplained > 1 {
			assert.Fail(k.t, "effects of what was on record",
				"%s had %d effects, of which %d were on record: %s", id, len(runs), unexplained,
				lived(id, runs))
		}
	}
	k.t.Logf("doubled effects were not on record because: %v", reasons)
}

// unrecorded returns why the effect of a run may not be on record, or "" when it must be.
func (r run) unrecorded(id string) string {
	ends := r.member.link.endsOf(id)
	for _, end := range ends {
		if end.Held && end.Written && end.Record.Attempt == r.attempt {
			return ""
		}
	}
	switch {
	case r.member.link.wasKilled():
		return "the process died"
	case errors.Is(r.cause, dedup.ErrLeaseLost):
		return "the lease was lost while the handler ran"
	case len(ends) > 0:
		return "the lease was lost before the store could be told"
	default:
		return ""
	}
}

func lived(id string, runs []run) (text string) {
	for i, r := range runs {
		text += fmt.Sprintf("\n\trun %d: attempt %d, cause %v, died %v", i+1, r.attempt, r.cause,
			r.member.link.wasKilled())
		for _, end := range r.member.link.endsOf(id) {
			text += fmt.Sprintf("; the store: held %v, written %v, attempt %d, %v", end.Held,
				end.Written, end.Record.Attempt, end.Err)
		}
	}
	return text
}
