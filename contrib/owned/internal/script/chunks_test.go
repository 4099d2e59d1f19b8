package script_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// What one pipeline may bring, as the documentation says.
const (
	mostBuckets = 512
	mostBytes   = 4 << 20
)

// bounded counts the buckets that are read, and tells of a pipeline that brings too much.
func bounded(t *testing.T, hook *pipelines, read map[string]int) {
	hook.after = func(cmds []redis.Cmder) {
		n, bytes := 0, 0
		for _, cmd := range cmds {
			if get, ok := cmd.(*redis.StringCmd); ok {
				n, bytes = n+1, bytes+len(get.Val())
				read[fmt.Sprint(get.Args()[1])]++
			}
		}
		if n > mostBuckets || bytes > mostBytes {
			t.Errorf("one pipeline brings %d buckets of %d bytes", n, bytes)
		}
	}
}

// spread are n IDs, each in a bucket of its own that begins with so many others.
func (p *part) spread(n, others int) *script.Ask {
	p.t.Helper()
	q := &script.Ask{Epoch: p.self.Epoch, FoldedTo: []script.FoldedTo{{Gen: p.g}}}
	front := strings.Repeat(rawMembers(2), others)
	pipe := p.client.Pipeline()
	for i := range n {
		id := int64(4 + 2*i)
		q.IDs = append(q.IDs, id)
		q.Buckets = append(q.Buckets, script.Bucket{Key: p.bucket(i), Of: []int{i}})
		pipe.Set(p.t.Context(), p.bucket(i), front+rawMembers(id), 0)
	}
	_, err := pipe.Exec(p.t.Context())
	p.must(err)
	return q
}

// TestAskIsBounded prevents the buckets of thousands of keys from being in memory together.
func TestAskIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		buckets, others int
		moved           bool
	}{
		"many":              {buckets: 2*mostBuckets + 3, others: 1},
		"many, read again":  {buckets: 2*mostBuckets + 3, others: 1, moved: true},
		"large":             {buckets: mostBuckets, others: 2 << 10},
		"larger, and again": {buckets: 20, others: 80 << 10, moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			hook := &pipelines{}
			p, runner := hookedPart(t, hook)
			q := p.spread(c.buckets, c.others)
			if c.moved {
				q.FoldedTo[0].N = 1
			}
			read := map[string]int{}
			bounded(t, hook, read)
			r := runner.Run(t.Context(), []script.Call{script.NewAsk(p.keys, q)})[0]
			if r.Err != nil || r.Moved != c.moved ||
				!slices.Equal(r.Found, slices.Repeat([]script.IDState{1}, c.buckets)) {
				t.Errorf("moved %t, found %v, %v", r.Moved, r.Found, r.Err)
			}
			if len(read) != c.buckets {
				t.Errorf("%d buckets were read, want %d", len(read), c.buckets)
			}
		})
	}
}

// TestAskOfSeveralIsBounded: the asks of many partitions share a pipeline.
func TestAskOfSeveralIsBounded(t *testing.T) {
	hook := &pipelines{}
	p, runner := hookedPart(t, hook)
	q := p.spread(mostBuckets-1, 1)
	read := map[string]int{}
	bounded(t, hook, read)
	call := script.NewAsk(p.keys, q)
	for i, r := range runner.Run(t.Context(), []script.Call{call, call, call}) {
		if r.Err != nil || !slices.Equal(r.Found,
			slices.Repeat([]script.IDState{1}, len(q.IDs))) {
			t.Errorf("ask %d: found %v, %v", i, r.Found, r.Err)
		}
	}
	if read[p.bucket(0)] != 3 || read[p.bucket(mostBuckets-2)] != 3 {
		t.Errorf("buckets were read %d and %d times, want 3", read[p.bucket(0)],
			read[p.bucket(mostBuckets-2)])
	}
}

// TestAskReadsOnAfterATouch: the end of a large bucket has the mark of what its beginning says
// was touched.
func TestAskReadsOnAfterATouch(t *testing.T) {
	p, runner := hookedPart(t, &pipelines{})
	q := p.spread(1, 0)
	others := strings.Repeat(rawMembers(2), 4<<10)
	p.must(p.client.Set(t.Context(), p.bucket(0),
		rawMembers(q.IDs[0]+1)+others+rawMembers(q.IDs[0]), 0).Err())
	if r := runner.Run(t.Context(),
		[]script.Call{script.NewAsk(p.keys, q)})[0]; r.Err != nil ||
		!slices.Equal(r.Found, []script.IDState{1}) {
		t.Errorf("answered %+v", r)
	}
}

// TestAskSkipsWhatIsFound: an ID that is found in one pipeline is not looked for in the next.
func TestAskSkipsWhatIsFound(t *testing.T) {
	hook := &pipelines{}
	p, runner := hookedPart(t, hook)
	q := p.spread(mostBuckets, 1)
	for i := range mostBuckets {
		q.Buckets = append(q.Buckets,
			script.Bucket{Key: p.bucket(mostBuckets + i), Of: []int{i}})
	}
	read := map[string]int{}
	bounded(t, hook, read)
	r := runner.Run(t.Context(), []script.Call{script.NewAsk(p.keys, q)})[0]
	if r.Err != nil || !slices.Equal(r.Found, slices.Repeat([]script.IDState{1}, mostBuckets)) {
		t.Errorf("found %v, %v", r.Found, r.Err)
	}
	if len(read) != mostBuckets {
		t.Errorf("%d buckets were read, want %d", len(read), mostBuckets)
	}
}

// TestAskFailsLate: a bucket of a later pipeline cannot be read, and nothing is read for an ask
// that has failed.
func TestAskFailsLate(t *testing.T) {
	hook := &pipelines{}
	p, runner := hookedPart(t, hook)
	q := p.spread(3*mostBuckets, 1)
	refused := errors.New("LOADING Redis is loading the dataset in memory")
	read := map[string]int{}
	bounded(t, hook, read)
	count := hook.after
	hook.after = func(cmds []redis.Cmder) {
		count(cmds)
		for _, cmd := range cmds {
			if get, ok := cmd.(*redis.StringCmd); ok && get.Args()[1] == p.bucket(mostBuckets+1) {
				get.SetVal("")
				get.SetErr(refused)
			}
		}
	}
	if r := runner.Run(t.Context(),
		[]script.Call{script.NewAsk(p.keys, q)})[0]; !errors.Is(r.Err, refused) ||
		len(r.Found) > 0 {
		t.Errorf("a bucket was not read, and the answer is %+v", r)
	}
	if len(read) != 2*mostBuckets {
		t.Errorf("%d buckets were read, want %d", len(read), 2*mostBuckets)
	}
}
