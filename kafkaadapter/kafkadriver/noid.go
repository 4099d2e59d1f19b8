package kafkadriver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// ErrFirstNoIDs: all messages of a partition so far have no id.
var ErrFirstNoIDs = fmt.Errorf("%w; none of the first messages of the partition has one, so Config.Park is not given them "+
	"unless Allow.NoID is set", kafkaadapter.ErrNoID)

const (
	// firstNoIDs is how many messages without an id stop the consumer if no message has had an id.
	// One or two of them at the beginning wait for a third, or for a message with an id: after a
	// restart the first message may be the odd one of a topic whose messages have ids.
	firstNoIDs = 3
	// noIDPause is the time between two looks of a message that waits for the others.
	noIDPause = 250 * time.Millisecond
)

// note counts the received messages without an id, before any of them is handled.
func (p *Partition) note(items []item) {
	if p.identified.Load() {
		return
	}
	for i := range items {
		switch it := &items[i]; {
		case errors.Is(it.bad, kafkaadapter.ErrNoID):
			p.noIDs.Add(1)
		case it.msg.ID != "":
			p.cfg.identified.add(TopicPartition{p.at.Topic, p.at.Partition})
			p.identified.Store(true)
			return
		}
	}
}

// unidentified handles a message without an id while its partition has had none with an id: if the
// configuration looks for ids in the wrong place, Park would empty the topic. It reports false for
// a message that may be put aside.
func (p *Partition) unidentified(t task, reason error) bool {
	if p.cfg.Allow.NoID || !errors.Is(reason, kafkaadapter.ErrNoID) || p.identified.Load() {
		return false
	}
	if p.noIDs.Load() >= firstNoIDs {
		t.Settle(pipeline.Stop(p.unprocessable(t.Item, ErrFirstNoIDs)))
		return true
	}
	if p.noIDWarned.CompareAndSwap(false, true) {
		p.warn("message without an id waits until the partition has one with an id, which lets it go to Config.Park, "+
			"or more without, which stop the consumer", t.Item, reason)
	}
	t.Settle(pipeline.RetryAfter(noIDPause))
	return true
}

// parkedEvery is the shortest time between two log lines about messages that were put aside.
const parkedEvery = 10 * time.Second

// parkedLog bounds the log lines about messages that are put aside, however many there are.
type parkedLog struct {
	mu     sync.Mutex
	logged time.Time
	count  int
}

func (l *parkedLog) due(now time.Time) (count int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if !l.logged.IsZero() && now.Sub(l.logged) < parkedEvery {
		return 0, false
	}
	count, l.count, l.logged = l.count, 0, now
	return count, true
}

func (p *Partition) logParked(it *item, reason error) {
	if n, due := p.cfg.parkedLog.due(time.Now()); due {
		p.cfg.Logger.Warn("kafkaadapter: message was given to Config.Park", "topic", p.at.Topic,
			"partition", p.at.Partition,
			"offset", it.msg.Offset, "reason", reason, "since the last line", n)
	}
}
