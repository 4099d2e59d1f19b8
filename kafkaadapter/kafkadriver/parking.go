package kafkadriver

import (
	"errors"
	"sync"
	"time"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

const (
	// parkers is how many calls of Park may be under way at once, for all partitions of a topic.
	parkers = 16
	// probeMax is the longest pause between two calls of Park while they fail.
	probeMax = time.Second
)

// parking is the queue of one topic: each topic may have a dead-letter topic of its own, and its
// letters must not wait for those of another.
//
// It calls Park on goroutines of its own. While a dead-letter topic is down, each call lasts
// until its timeout; calls on the workers would leave few workers to healthy messages. While calls
// fail, parking makes one at a time, with pauses. The other messages wait without a worker: only
// their keys and offsets wait with them. Goroutines exist only while there is something to do.
type parking struct {
	mu       sync.Mutex
	queue    []parkJob
	active   int
	failures int  // in a row
	paused   bool // until the next probe
}

type parkJob struct {
	p      *Partition
	task   task
	reason error
}

// add queues a message. While its partition is being given up, the message is put aside now or by
// the next owner.
func (k *parking) add(j parkJob) {
	k.mu.Lock()
	failing := k.failures > 0
	k.mu.Unlock()
	if failing {
		j.yield()
	}
	k.mu.Lock()
	if j.p.leaving.Load() && (k.paused || len(k.queue) > 0 || k.active >= k.limit()) {
		k.mu.Unlock()
		j.putOff()
		return
	}
	k.queue = append(k.queue, j)
	k.start()
	k.mu.Unlock()
}

// yield gives back the claims of the messages behind this one in its queue. Otherwise they could
// use up all of Tuning.ClaimAhead, and healthy messages would be claimed one by one. Call it only
// for a job that nobody else has: once its task is settled, the messages behind it run, under these
// very claims.
func (j parkJob) yield() { j.p.yield(j.task.Item) }

func (k *parking) limit() int {
	if k.failures > 0 {
		return 1
	}
	return parkers
}

// start begins as many calls as are allowed; k.mu is held.
func (k *parking) start() {
	for n := len(k.queue); n > 0 && !k.paused && k.active < k.limit(); n-- {
		k.active++
		go k.run()
	}
}

func (k *parking) run() {
	for {
		k.mu.Lock()
		if len(k.queue) == 0 || k.paused || k.active > k.limit() {
			k.active--
			k.mu.Unlock()
			return
		}
		j := k.queue[0]
		k.queue[0] = parkJob{}
		k.queue = k.queue[1:]
		k.mu.Unlock()
		k.one(j)
	}
}

func (k *parking) one(j parkJob) {
	returned := false
	defer func() {
		if !returned { // Park ended this goroutine
			k.mu.Lock()
			k.active--
			k.start()
			k.mu.Unlock()
			j.p.letGo(j.task.Item)
			j.task.Settle(pipeline.Stop(pipeline.ErrNoDecision))
		}
	}()
	err := j.p.callPark(j.p.queues.Context(), j.task.Item, j.reason)
	returned = true
	switch {
	case err != nil && j.p.queues.Context().Err() != nil: // cut short: that says nothing of Park
		j.putOff()
		return
	case err != nil && k.inPlace(j, err):
		return
	case err != nil:
		k.failed(j, err)
		return
	}
	k.mu.Lock()
	k.failures = 0
	k.start()
	k.mu.Unlock()
	j.p.parked(j.task, j.reason)
}

// inPlace retries a message in its place when it is too large for its topic of Attempts.Delayed.
func (k *parking) inPlace(j parkJob, err error) bool {
	later := (*laterError)(nil)
	if !errors.As(j.reason, &later) || !errors.Is(err, kafkaadapter.ErrTooLarge) {
		return false
	}
	j.p.failed(j.p.queues.Context(), j.task, later.err)
	return true
}

// failed keeps the message, and all others that wait, for later. Messages of partitions that are
// being given up are left to the next owners. While the jobs are out of the queue, a partition that
// is given up does not find its jobs there. But it sets leaving before it looks, so failed finds
// them when it puts them back.
func (k *parking) failed(j parkJob, err error) {
	k.mu.Lock()
	first, delay := k.failures == 0, min(j.p.cfg.retry.Delay(k.failures, 0, nil), probeMax)
	k.failures++
	probe := !k.paused
	k.paused = true
	waiting := append(k.queue, j) //nolint:gocritic // the queue is taken
	k.queue = nil
	k.mu.Unlock()
	if first {
		j.p.warn("message could not be parked; others wait for it, one is tried at a time",
			j.task.Item, err)
	}
	for _, w := range waiting {
		w.yield()
	}
	k.mu.Lock()
	k.queue = append(waiting, k.queue...)
	leaving := k.take(func(of *Partition) bool { return of.leaving.Load() })
	if probe {
		time.AfterFunc(delay, k.resume)
	}
	k.mu.Unlock()
	for _, l := range leaving {
		l.putOff()
	}
}

func (k *parking) resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = false
	k.start()
}

// drop puts off the waiting messages of a partition that is being given up.
func (k *parking) drop(p *Partition) {
	k.mu.Lock()
	jobs := k.take(func(of *Partition) bool { return of == p })
	k.mu.Unlock()
	for _, j := range jobs {
		j.putOff()
	}
}

// take removes jobs from the queue; k.mu is held.
func (k *parking) take(which func(*Partition) bool) (jobs []parkJob) {
	kept := make([]parkJob, 0, len(k.queue))
	for _, j := range k.queue {
		if which(j.p) {
			jobs = append(jobs, j)
		} else {
			kept = append(kept, j)
		}
	}
	k.queue = kept
	return jobs
}

// putOff leaves a message to the next owner of its partition.
func (j parkJob) putOff() {
	j.task.Item.bad = j.reason // do not run it again before it is parked
	j.p.putOff(j.task, 0)      // also gives back a claim that nobody comes for any more
}
