package dedup_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// ledger counts, below all faults, which attempts the store has put on record.
type ledger struct {
	dedup.Store
	mu       sync.Mutex
	recorded map[driver.Token]bool
}

func (l *ledger) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := l.Store.Finish(ctx, changes)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, ans := range answers {
		if ans.Written && changes[i].State == driver.StateSucceeded {
			l.recorded[changes[i].Token] = true
		}
	}
	return answers
}

// process is a consumer that can lose its connection, or die, at any store call.
type process struct {
	t     *testing.T
	store *hooked
	d     *dedup.Deduper
	died  chan struct{}
	hit   string // the method that the crash has hit: renewals come at random times
}

func newProcess(t *testing.T, shared dedup.Store) *process {
	p := &process{t: t, store: &hooked{inner: shared}, died: make(chan struct{})}
	p.d = newDeduper(t, p.store, nil)
	p.store.setBefore(func(call) error {
		if p.dead() {
			return errNet // nothing leaves a dead process
		}
		return nil
	})
	return p
}

func (p *process) die() { close(p.died) }

func (p *process) dead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// crash says where in the processing of one message one fault occurs.
type crash struct {
	call  int    // index of the store call, from 1
	reply bool   // executed, and its reply lost; otherwise its request is lost
	dies  bool   // the process ends there; otherwise it continues
	point string // or: the process ends in its handler, "before" or "after" the effect
}

func (c crash) String() string {
	if c.point != "" {
		return "dies " + c.point + " the effect"
	}
	return fmt.Sprintf("call %d, reply %t, dies %t", c.call, c.reply, c.dies)
}

// arm makes the crash happen.
func (p *process) arm(c crash) {
	strike := func(this call) error {
		if p.dead() {
			return errNet
		}
		if this.total != c.call {
			return nil
		}
		p.hit = this.method
		if c.dies {
			p.die()
		}
		return errNet
	}
	if c.reply {
		p.store.setAfter(strike)
	} else if c.call > 0 {
		p.store.setBefore(strike)
	}
}

// consume processes the message as this process: its effect takes some time.
func (p *process) consume(c crash, takes time.Duration, effect func()) error {
	done := make(chan error, 1)
	go func() {
		err := errNet // for a process that dies in its handler
		defer func() { done <- err }()
		_, err = dedup.Do(p.t.Context(), p.d, "k", func(context.Context) (string, error) {
			time.Sleep(takes)
			p.dieAt(c, "before")
			effect()
			p.dieAt(c, "after")
			return "v", nil
		})
	}()
	return <-done
}

func (p *process) dieAt(c crash, point string) {
	if c.point == point {
		p.die()
	}
	if p.dead() {
		runtime.Goexit()
	}
}

// crashed is the result of one message.
type crashed struct {
	effects, records int
	hit              string
	first            error // what its first owner got
}

// crashRun delivers one message to a first owner that meets a crash, and then to another one.
func crashRun(t *testing.T, c crash, takes time.Duration) (run crashed) {
	shared := &ledger{Store: dedup.Memory(10), recorded: map[driver.Token]bool{}}
	a, b := newProcess(t, shared), newProcess(t, shared)
	a.arm(c)
	effect := func() { run.effects++ }
	run.first = a.consume(c, takes, effect)

	for try := 0; ; try++ {
		err := b.consume(crash{}, takes, effect)
		if err == nil {
			break
		}
		require.False(t, dedup.OutcomeUnknown(err), "the redelivery got %v", err)
		require.ErrorIs(t, err, dedup.ErrInFlight)
		require.LessOrEqual(t, try, 30)
		time.Sleep(time.Second)
	}
	assert.Equal(t, "v", string(wantState(t, shared, "k", driver.StateSucceeded).Result))
	run.records, run.hit = len(shared.recorded), a.hit
	return run
}

// Every store call for one message loses its request or its reply, and the owner survives or dies
// with it. The message is recorded once. Its effect happens once, or twice only when its owner
// died between effect and record.
func TestCrashMatrix(t *testing.T) {
	for name, takes := range map[string]time.Duration{"fast": 0, "many leases": 25 * time.Second} {
		t.Run(name, func(t *testing.T) {
			calls := lifeOf(t, takes)
			for n := 1; n <= calls; n++ {
				for _, c := range []crash{
					{call: n}, {call: n, reply: true},
					{call: n, dies: true}, {call: n, reply: true, dies: true},
				} {
					wantCrash(t, c, takes)
				}
			}
			wantCrash(t, crash{point: "before"}, takes)
			wantCrash(t, crash{point: "after"}, takes)
		})
	}
}

// lifeOf counts the store calls of one message without a crash. The last call is its record.
func lifeOf(t *testing.T, takes time.Duration) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, dedup.Memory(10))
		require.NoError(t, p.consume(crash{}, takes, func() {}))
		all := p.store.of()
		calls = len(all)
		require.Equal(t, "Claim", all[0].method)
		require.Equal(t, "Finish", all[calls-1].method)
	})
	return calls
}

func wantCrash(t *testing.T, c crash, takes time.Duration) {
	t.Run(c.String(), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := crashRun(t, c, takes)
			want := 1
			if c.point == "after" || run.hit == "Finish" && c.dies && !c.reply {
				want = 2
			}
			assert.Equal(t, want, run.effects)
			assert.Equal(t, 1, run.records)
			died := c.point != "" || c.dies && run.hit != ""
			if died {
				assert.Error(t, run.first, "a dead owner acknowledged its message")
			} else {
				assert.NoError(t, run.first, "the first owner lived")
			}
		})
	})
}
