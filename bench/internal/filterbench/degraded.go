package filterbench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// degradedKeys is the most that filters are planned for that get too much.
const degradedKeys = 40_000

// degraded: what is left of a filter that is overloaded, attacked, emptied or read from a snapshot
// that was damaged. An id that was fed and is called new would be a second effect.
func (e *env) degraded() []harness.Group {
	keys := min(degradedKeys, e.most())
	var all []harness.Group
	add := func(title string, measure func(keys int) ([]harness.Row, error)) {
		all = append(all, group("degraded", 0, title, func(context.Context) ([]harness.Row, error) {
			return measure(keys)
		}))
	}
	add("ten times the plan, no more memory", func(keys int) ([]harness.Row, error) {
		return overloaded("10x the plan, no more memory", keys, 1)
	})
	add("ten times the plan, 20 times the memory", func(keys int) ([]harness.Row, error) {
		return overloaded("10x the plan, up to 20x the memory", keys, 20)
	})
	add("crafted ids", crafted)
	add("emptied", emptied)
	add("damaged snapshot", damaged)
	return all
}

func share(n, of int) float64 { return 100 * float64(n) / float64(of) }

var (
	noGoal = harness.Goal{}
	none   = harness.ValueAtMost(0, 0, "ids")
)

// overloaded fills the newest generation with ten times its plan.
func overloaded(name string, keys int, memory uint64) ([]harness.Row, error) {
	o := options(keys)
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	o.MaxBytes = int64(memory * plan.Bytes)
	f, _, err := open(o)
	if err != nil {
		return nil, err
	}
	n := int(10 * plan.SliceKeys)
	for i := range n {
		f.Add(id(uint64(i)))
	}
	fed := answersOf(f, n, id)
	fresh := answersOf(f, n, unknown)
	grown := float64(f.Stats().Bytes) / float64(plan.Bytes/uint64(plan.Generations))
	return []harness.Row{
		harness.Figure(name+": ids that were fed and are New", "fed", float64(fed[bloom.ProvenNew]),
			"ids", none),
		harness.Figure(name+": new ids that are New", "new", share(fresh[bloom.ProvenNew], n),
			"%", noGoal),
		harness.Figure(name+": new ids that are Maybe", "maybe", share(fresh[bloom.Maybe], n),
			"%", noGoal),
		harness.Figure(name+": new ids that are Unknown(Saturated)", "unknown",
			share(fresh[bloom.Unknown], n), "%", noGoal),
		harness.Figure(name+": memory of the generation", "memory",
			grown, "times the plan", noGoal),
	}, nil
}

func answersOf(f *bloom.Filter, n int, id func(uint64) [16]byte) (count [3]int) {
	for i := range n {
		answer, _ := f.Check(id(uint64(i)))
		count[answer]++
	}
	return count
}

// crafted noGoal for victims after an attacker, who knows one secret, had ids of his choice added.
func crafted(keys int) ([]harness.Row, error) {
	const victims = 16
	known := [16]byte{}
	o := options(keys)
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	var ids [][16]byte
	for n := range uint64(victims) {
		ids = append(ids, craft(known, unknown(n), plan.Bits/512, n<<32)...)
	}
	rows := []harness.Row{harness.Figure("crafted ids that make one victim Maybe", "attacker",
		float64(len(ids))/victims, "ids", noGoal)}
	for _, c := range []struct {
		name   string
		secret []byte
		goal   harness.Goal
	}{
		{"victims that are Maybe, secret known to the attacker", known[:], noGoal},
		{"victims that are Maybe, random secret (default)", nil, harness.ValueAtMost(0, 0, "%")},
	} {
		o.Secret = c.secret
		f, _, err := open(o)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			f.Add(id)
		}
		answers := answersOf(f, victims, unknown)
		rows = append(rows, harness.Figure(c.name, "victims", share(answers[bloom.Maybe], victims),
			"%", c.goal))
	}
	return rows, nil
}

// emptied is a process that begins again, with and without being told that it need not be told.
func emptied(keys int) ([]harness.Row, error) {
	f, err := bloom.New(options(keys))
	if err != nil {
		return nil, err
	}
	before := answersOf(f, keys, id)
	f.Begin(bloom.Source{Name: source})
	loading := answersOf(f, keys, id)
	return []harness.Row{
		harness.Figure("emptied, no feed: ids that were fed to another process and are New",
			"no feed", float64(before[bloom.ProvenNew]), "ids", none),
		harness.Figure("emptied, loading: ids that were fed to another process and are New",
			"loading", float64(loading[bloom.ProvenNew]), "ids", none),
	}, nil
}

// damaged flips a byte of a snapshot at a time.
func damaged(int) ([]harness.Row, error) {
	const flips = 400
	o := stored(400)
	f, err := filled(o)
	if err != nil {
		return nil, err
	}
	var good bytes.Buffer
	if err := f.Save(&good); err != nil {
		return nil, err
	}
	g, err := bloom.New(o)
	if err != nil {
		return nil, err
	}
	g.Begin(bloom.Source{Name: source})
	random, accepted := rand.New(rand.NewPCG(1, 2)), 0
	for range flips {
		bad := bytes.Clone(good.Bytes())
		bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
		if _, err := g.Load(bytes.NewReader(bad), bloom.Source{Name: source}); err == nil {
			accepted++
		}
	}
	if _, err := g.Load(bytes.NewReader(good.Bytes()), bloom.Source{Name: source}); err != nil {
		return nil, fmt.Errorf("the snapshot that was not damaged: %w", err)
	}
	return []harness.Row{
		harness.Figure(fmt.Sprintf("snapshots with a byte changed that were accepted, of %d",
			flips), "damaged", float64(accepted), "snapshots",
			harness.ValueAtMost(0, 0, "snapshots")),
	}, nil
}
