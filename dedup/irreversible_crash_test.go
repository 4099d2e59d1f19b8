package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// askedRun is the result of one message with a dangerous effect. Its first owner meets a crash. The
// redelivery goes to another process, which asks the bank if the key is uncertain.
type askedRun struct {
	effects, questions int
	first              error
	hit                string
}

func pay(p *process, c crash, effect func()) error {
	done := make(chan error, 1)
	go func() {
		err := errNet // for a process that dies in its handler
		defer func() { done <- err }()
		_, err = dedup.Do(p.t.Context(), p.d, "k", func(ctx context.Context) (string, error) {
			if err := dedup.MarkIrreversible(ctx); err != nil {
				p.dieAt(c, "danger")
				return "", dedup.NotStarted(err)
			}
			p.dieAt(c, "before")
			effect()
			p.dieAt(c, "after")
			return "v", nil
		})
	}()
	return <-done
}

func runAsked(t *testing.T, c crash) (run askedRun) {
	shared := dedup.Memory(10)
	a, b := newProcess(t, shared), newProcess(t, shared)
	b.d = newDeduper(t, b.store, func(cfg *dedup.Config) {
		cfg.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			run.questions++
			if run.effects > 0 {
				return dedup.Happened([]byte("v")), nil
			}
			return dedup.DidNotHappen(), nil
		}
	})
	a.arm(c)
	effect := func() { run.effects++ }
	run.first = pay(a, c, effect)
	run.hit = a.hit
	for try := 0; ; try++ {
		err := pay(b, crash{}, effect)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, dedup.ErrInFlight, "the redelivery")
		require.LessOrEqual(t, try, 30)
		time.Sleep(time.Second)
	}
	assert.Equal(t, "v", string(wantState(t, shared, "k", driver.StateSucceeded).Result))
	return run
}

// Wherever the first owner loses a call, or dies, the effect happens once. This is the row "Asked"
// of the guarantees.
func TestAskedRunsOnceWhateverCrashes(t *testing.T) {
	crashes := []crash{{point: "before"}, {point: "after"}}
	for n := 1; n <= 4; n++ {
		crashes = append(crashes, crash{call: n}, crash{call: n, reply: true},
			crash{call: n, dies: true}, crash{call: n, reply: true, dies: true})
	}
	asked := 0
	for _, c := range crashes {
		t.Run(c.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := runAsked(t, c)
				assert.Equal(t, 1, run.effects)
				asked += run.questions
			})
		})
	}
	assert.NotZero(t, asked, "nobody was ever asked: the test says little")
}
