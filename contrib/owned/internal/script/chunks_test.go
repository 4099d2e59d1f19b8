package script_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// One pipeline may read no more than this, as the documentation says.
const (
	mostBuckets = 512
	mostBytes   = 4 << 20
)

// bounded counts the buckets that are read, and reports a pipeline that brings too much.
func bounded(t *testing.T, hook *pipelines, read map[string]int) {
	hook.after = func(cmds []redis.Cmder) {
		n, bytes := 0, 0
		for _, cmd := range cmds {
			if get, ok := cmd.(*redis.StringCmd); ok {
				n, bytes = n+1, bytes+len(get.Val())
				read[fmt.Sprint(get.Args()[1])]++
			}
		}
		assert.LessOrEqual(t, n, mostBuckets, "of one pipeline")
		assert.LessOrEqual(t, bytes, mostBytes)
	}
}

// spread returns n IDs, each in a bucket of its own that holds other IDs before.
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
			require.NoError(t, r.Err)
			assert.Equal(t, c.moved, r.Moved)
			assert.Equal(t, slices.Repeat([]script.IDState{1}, c.buckets), r.Found)
			assert.Len(t, read, c.buckets)
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
		require.NoError(t, r.Err, "ask %d", i)
		assert.Equal(t, slices.Repeat([]script.IDState{1}, len(q.IDs)), r.Found, "ask %d", i)
	}
	assert.Equal(t, 3, read[p.bucket(0)], "buckets were read")
	assert.Equal(t, 3, read[p.bucket(mostBuckets-2)])
}

// TestAskReadsOnAfterATouch: a large bucket has a touch of a key at its beginning, and the mark of
// the same key at its end.
func TestAskReadsOnAfterATouch(t *testing.T) {
	p, runner := hookedPart(t, &pipelines{})
	q := p.spread(1, 0)
	others := strings.Repeat(rawMembers(2), 4<<10)
	p.must(p.client.Set(t.Context(), p.bucket(0),
		rawMembers(q.IDs[0]+1)+others+rawMembers(q.IDs[0]), 0).Err())
	r := runner.Run(t.Context(),
		[]script.Call{script.NewAsk(p.keys, q)})[0]
	require.NoError(t, r.Err)
	assert.Equal(t, []script.IDState{1}, r.Found)
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
	require.NoError(t, r.Err)
	assert.Equal(t, slices.Repeat([]script.IDState{1}, mostBuckets), r.Found)
	assert.Len(t, read, mostBuckets)
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
	r := runner.Run(t.Context(),
		[]script.Call{script.NewAsk(p.keys, q)})[0]
	assert.ErrorIs(t, r.Err, refused, "a bucket was not read")
	assert.Empty(t, r.Found)
	assert.Len(t, read, 2*mostBuckets)
}
