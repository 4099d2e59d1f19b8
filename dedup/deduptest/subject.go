package deduptest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Subject is a handler under test, and where its effects can be counted. [Twice] and [Storm]
// hand it messages under names of their own, which no other run has.
type Subject struct {
	// Deliver hands one message to the handler, as the consumer or the server does, which must
	// use d for it. nil means acknowledged: the message is not redelivered. Required.
	Deliver func(ctx context.Context, d *dedup.Deduper, message string) error
	// Effects counts how often a message has had its effect, where the effect happens: rows in
	// the database, calls of the payment provider's double. Required.
	Effects func(message string) int
	// Store is called once, and returns the store of all Dedupers. Default: [dedup.Memory]. A store
	// that keeps no results, or wants all claims of a key from one partition, is not supported.
	Store func(t testing.TB) driver.Store
	// Config of the Dedupers. Defaults: Namespace "deduptest", Window an hour, LeaseTTL 1 s. A
	// message whose process has crashed is handled again only when its lease has lapsed. So a test
	// with a real clock takes a few leases; in a bubble of testing/synctest it takes no time.
	Config dedup.Config
	// Atomic says that no crash excuses a second effect: the downstream is idempotent, or has the
	// record in the transaction of the effect.
	Atomic bool
}

// Report is what [Twice] and [Storm] have seen.
type Report struct {
	// Deliveries made, of all messages.
	Deliveries int
	// Faults that hit a call of the store: crashes, pauses, lost requests and replies.
	Faults int
	// Doubled are the messages with more than one effect.
	Doubled []Incident
	// Lost are those that were acknowledged without an effect, or never were acknowledged.
	Lost []Incident
}

// Incident is what happened to one message.
type Incident struct {
	// Message is its name.
	Message string
	// Effects that it had.
	Effects int
	// Explained says that for each effect but one, a fault hit the store while the key was held. As
	// far as an observer can tell, the fault came between the effect and its record. Never with
	// Subject.Atomic.
	Explained bool
	// Story describes the deliveries of the message, one per line.
	Story string
}

// trial is a Subject under test.
type trial struct {
	Subject
	t     testing.TB
	store driver.Store
	run   string // in the name of every message
	ctx   context.Context
	end   context.CancelFunc

	mu        sync.Mutex
	processes []*process
	messages  []*message
	count     int // of deliveries
	faults    int
	givenUp   int // messages
}

// message is one message, and what happened to it. The trial's lock guards it.
type message struct {
	name    string
	number  int
	acked   bool
	givenUp bool
	err     error // of the last delivery
	hits    int   // deliveries that a fault may have made run again
	story   []string
}

func newTrial(t testing.TB, s Subject) *trial {
	t.Helper()
	if s.Deliver == nil || s.Effects == nil {
		t.Fatal("deduptest: Subject.Deliver and Subject.Effects are required")
	}
	if s.Store == nil {
		s.Store = func(testing.TB) driver.Store { return dedup.Memory(1 << 16) }
	}
	if s.Config.Namespace == "" {
		s.Config.Namespace = "deduptest"
	}
	if s.Config.Window == 0 {
		s.Config.Window = time.Hour
	}
	if s.Config.LeaseTTL == 0 {
		s.Config.LeaseTTL = time.Second
	}
	tr := &trial{Subject: s, t: t, store: s.Store(t), run: rand.Text()[:10]}
	if _, err := dedup.New(tr.store, s.Config); err != nil {
		t.Fatalf("deduptest: Subject.Config: %v", err)
	}
	tr.ctx, tr.end = context.WithCancel(context.Background())
	return tr
}

// newMessage makes a message. Its name says what is going to happen to it.
func (tr *trial) newMessage(about string) *message {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	m := &message{name: fmt.Sprintf("%s-%s-%d", about, tr.run, len(tr.messages)),
		number: len(tr.messages)}
	tr.messages = append(tr.messages, m)
	return m
}

// deliver gives a message to a process of its own, which may crash.
func (tr *trial) deliver(m *message, plan fate) (acked bool) {
	p := tr.start(plan)
	go func() {
		defer close(p.done)
		p.err = tr.Deliver(p.ctx, p.d, m.name)
	}()
	crashed := false
	select {
	case <-p.done:
	case <-p.crashed:
		crashed = true
	}
	p.mu.Lock()
	told, exposed, faults := slices.Clone(p.told), p.exposed, p.faults
	p.mu.Unlock()

	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.count++
	tr.faults += faults
	if exposed {
		m.hits++
	}
	switch {
	case crashed:
		told = append(told, "crashed")
	case p.err != nil:
		m.err = p.err
		told = append(told, p.err.Error())
	default:
		m.acked = true
		told = append(told, "acknowledged")
	}
	m.story = append(m.story, strings.Join(told, ", "))
	return !crashed && p.err == nil
}

const (
	attempts = 200 // at most, to have a message acknowledged
	enough   = 5   // messages that could not be, after which no more are delivered
)

// until delivers a message again until it is acknowledged, every quarter of a lease.
func (tr *trial) until(m *message, plan func(delivery int) fate) {
	for n := range attempts {
		if tr.abandoned(m) || tr.deliver(m, plan(n)) {
			return
		}
		<-time.After(tr.Config.LeaseTTL / 4)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !m.givenUp {
		m.givenUp = true
		tr.givenUp++
	}
}

func (tr *trial) abandoned(m *message) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return m.givenUp || tr.givenUp >= enough
}

// judge ends all processes and counts the effects.
func (tr *trial) judge() Report {
	tr.t.Helper()
	tr.end()
	for _, p := range tr.processes {
		p.bury()
	}
	report := Report{Deliveries: tr.count, Faults: tr.faults}
	for _, m := range tr.messages {
		effects := tr.Effects(m.name)
		in := Incident{Message: m.name, Effects: effects, Story: strings.Join(m.story, "\n")}
		switch {
		case len(m.story) == 0: // others had been given up before
		case !m.acked:
			tr.t.Errorf("deduptest: %s was never acknowledged, at last for %v:\n%s", m.name,
				m.err, in.Story)
			report.Lost = append(report.Lost, in)
		case effects < 1:
			tr.t.Errorf("deduptest: %s is lost: acknowledged without an effect:\n%s",
				m.name, in.Story)
			report.Lost = append(report.Lost, in)
		case effects > 1:
			in.Explained = !tr.Atomic && effects-1 <= m.hits
			report.Doubled = append(report.Doubled, in)
			if !in.Explained {
				tr.t.Errorf("deduptest: %s had %d effects, and %d would be explained:\n%s",
					m.name, effects, 1+min(m.hits, tr.excused()), in.Story)
			}
		}
	}
	tr.t.Logf("deduptest: %d messages, %d deliveries, %d faults: %d lost, %d doubled",
		len(tr.messages), tr.count, tr.faults, len(report.Lost), len(report.Doubled))
	return report
}

func (tr *trial) excused() int {
	if tr.Atomic {
		return 0
	}
	return attempts
}
