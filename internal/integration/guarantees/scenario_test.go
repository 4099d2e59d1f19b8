package guarantees_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// run is one message, or a batch of them, through one fault.
type run struct {
	keys []string

	mu      sync.Mutex
	effects map[string]int
	runs    int // of a handler
}

func (r *run) of(k string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.effects[k]
}

// runner is a process that the fault may end.
type runner struct {
	*run

	d     *dedup.Deduper
	redis *redisadapter.Store // for effects in Redis
	// dead reports whether the process is dead, so that it has no more effects.
	dead func() bool
}

// effect happens unless the process is dead.
func (p *runner) effect(k string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead() {
		runtime.Goexit()
	}
	p.effects[k]++
}

// kind is a kind of Deduper. Its completions are a script, a plain SET, or SADD.
type kind struct {
	name     string
	layout   redisadapter.Layout
	seenOnly bool
}

var full = kind{"full", redisadapter.Full, false}

// scenario is what happens to a message: first runs in the process that meets the fault. Then again
// runs in another process until it returns nil.
type scenario struct {
	name string
	kind kind
	keys int
	done bool // the keys are done before the fault comes
	// once says that no crash excuses a double. forgets says that first may make the store forget
	// the keys.
	once, forgets bool
	atomic        bool // the effect is in Redis
	first, again  func(ctx context.Context, p *runner) error
}

// scenarios returns those of Full, and with the build tag long those of every kind.
func scenarios() []scenario {
	all := []scenario{
		{name: "steps", first: steps, again: steps},
		{name: "danger", once: true, first: danger, again: danger},
		{name: "ended by its fence", first: fenced, again: fenced},
		{name: "released", first: released, again: released},
		{name: "failed", first: failed, again: failed},
		{name: "looked up", done: true, first: lookedUp, again: single},
		{name: "marked", first: marked, again: marked},
		{name: "forgotten", done: true, forgets: true, first: forgotten, again: single},
	}
	for _, k := range kinds {
		all = append(all,
			scenario{name: "single", kind: k, first: single, again: single},
			scenario{name: "batch", kind: k, keys: 3, first: batch, again: batch},
			scenario{name: "duplicate", kind: k, done: true, first: single, again: single},
		)
		if len(kinds) > 1 && k.layout == redisadapter.Full {
			all = append(all, scenario{name: "atomic", kind: k, atomic: true, once: true,
				first: inRedis, again: inRedis})
		}
	}
	return all
}

func (l *scenario) String() string { return fmt.Sprintf("%s in %s", l.name, l.kind.name) }

// hasRun returns nil for an error that may be acknowledged.
func hasRun(err error) error {
	if dedup.CanAck(err) {
		return nil
	}
	return err
}

func single(ctx context.Context, p *runner) error {
	_, err := dedup.Do(ctx, p.d, p.keys[0], func(context.Context) (struct{}, error) {
		p.effect(p.keys[0])
		return struct{}{}, nil
	})
	return hasRun(err)
}

// steps charges, then mails.
func steps(ctx context.Context, p *runner) error {
	_, err := dedup.Do(ctx, p.d, p.keys[0], func(ctx context.Context) (struct{}, error) {
		if _, err := dedup.Step(ctx, "charge", func(context.Context) (struct{}, error) {
			p.effect("charge")
			return struct{}{}, nil
		}); err != nil {
			return struct{}{}, err
		}
		p.effect(p.keys[0])
		return struct{}{}, nil
	})
	return err
}

func danger(ctx context.Context, p *runner) error {
	_, err := dedup.Do(ctx, p.d, p.keys[0], func(ctx context.Context) (struct{}, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return struct{}{}, dedup.NotStarted(err)
		}
		p.effect(p.keys[0])
		return struct{}{}, nil
	})
	return err
}

// fenced reads its fence, so that the server decides how its attempt ends.
func fenced(ctx context.Context, p *runner) error {
	_, err := dedup.Do(ctx, p.d, p.keys[0], func(ctx context.Context) (struct{}, error) {
		a, _ := dedup.FromContext(ctx)
		if a.Fence() == 0 {
			return struct{}{}, errors.New("no fence")
		}
		p.effect(p.keys[0])
		return struct{}{}, nil
	})
	return err
}

var errBusy = errors.New("the downstream is busy")

// released fails in its first run, before its effect.
func released(ctx context.Context, p *runner) error {
	_, err := dedup.Do(ctx, p.d, p.keys[0], func(context.Context) (struct{}, error) {
		p.mu.Lock()
		p.runs++
		first := p.runs == 1
		p.mu.Unlock()
		if first {
			return struct{}{}, errBusy
		}
		p.effect(p.keys[0])
		return struct{}{}, nil
	})
	return err
}

// failed has an effect and fails permanently.
func failed(ctx context.Context, p *runner) error {
	_, err := dedup.Do(ctx, p.d, p.keys[0], func(context.Context) (struct{}, error) {
		p.effect(p.keys[0])
		return struct{}{}, dedup.Permanent(errors.New("refused"))
	})
	return hasRun(err)
}

func lookedUp(ctx context.Context, p *runner) error {
	rec, err := p.d.Lookup(ctx, p.keys[0])
	if err == nil && rec.State != driver.StateSucceeded {
		return fmt.Errorf("a done key is %v", rec.State)
	}
	return err
}

// marked uses the level Skip.
func marked(ctx context.Context, p *runner) error {
	seen, err := p.d.Seen(ctx, p.keys[0])
	if seen || err != nil {
		return err
	}
	p.effect(p.keys[0])
	_, err = p.d.Mark(ctx, p.keys[0])
	return err
}

func forgotten(ctx context.Context, p *runner) error { return p.d.Forget(ctx, p.keys[0]) }

func batch(ctx context.Context, p *runner) error {
	var reqs []dedup.Request
	for _, k := range p.keys {
		reqs = append(reqs, dedup.Request{Key: k})
	}
	claims, err := p.d.ClaimBatch(ctx, reqs)
	if err != nil {
		return err
	}
	var open []error
	var done []dedup.Completion
	for _, c := range claims {
		switch {
		case c.Outcome == dedup.Acquired:
			p.effect(c.Key)
			done = append(done, dedup.Completion{Claim: c})
		case c.Outcome != dedup.Duplicate:
			open = append(open, c.Err())
		}
	}
	return errors.Join(append(open, p.d.CompleteBatch(ctx, done)...)...)
}

func inRedis(ctx context.Context, p *runner) error {
	_, err := p.redis.DoAtomic(ctx, p.d, dedup.Request{Key: p.keys[0]}, (&till{}).incr(p.keys[0]))
	return err
}

// stored is the state of a key after the fault, before the next delivery.
type stored struct {
	recorded, absent bool
	effects          int
}

// caseCounts counts the cases of all faults and their results.
type caseCounts struct {
	cases, deaths, doubles, forgets int
}

// judge compares the result for each key with the table: a key on record does not run again, and
// any other key does. So a second effect needs a death between effect and record.
func (l *scenario) judge(t *testing.T, r *run, v *caseCounts, was map[string]stored,
	died bool, first error, effects func(k string) int) {
	t.Helper()
	v.cases++
	if died {
		v.deaths++
	}
	for _, k := range r.keys {
		was, now := was[k], effects(k)
		want := was.effects
		if !was.recorded {
			want++
		}
		switch {
		case now < 1 || was.recorded && was.effects < 1:
			t.Errorf("%s is LOST: %+v, then %d effects", k, was, now)
		case now != want && (!l.once || now != 1):
			t.Errorf("%s: %+v, then %d effects, want %d", k, was, now, want)
		case !died && first == nil && !was.recorded && !l.forgets:
			t.Errorf("%s was acknowledged and is not on record", k)
		case now == 1:
		case l.forgets && was.absent && now == 2:
			v.forgets++
		case died && !l.once && now == 2:
			v.doubles++
		default:
			t.Errorf("%s is DOUBLED: %+v, then %d effects, died %t, first %v", k, was, now,
				died, first)
		}
	}
	charges := r.of("charge")
	assert.False(t, charges > 1 && !died, "charged %d times, and no process had died", charges)
	assert.False(t, !died && first != nil && !slices.Contains([]error{errBusy}, first),
		"the process lives, and got %v", first)
}
