package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// item is what the tests submit: the n-th message of a key.
type item struct {
	key string
	n   int
}

func newKeyQueues(t *testing.T, cfg pipeline.KeyQueuesConfig,
	process func(context.Context, item) pipeline.Decision) *pipeline.KeyQueues[item] {
	t.Helper()
	l, err := pipeline.NewKeyQueues(context.WithoutCancel(t.Context()), cfg, process)
	require.NoError(t, err)
	return l
}

func submit(t *testing.T, l *pipeline.KeyQueues[item], items ...item) {
	t.Helper()
	for _, it := range items {
		require.NoError(t, l.Submit([]byte(it.key), it), it)
	}
}

// journal records what ran, in order, with the time since its start.
type journal struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func newJournal() *journal { return &journal{start: time.Now()} }

func (j *journal) note(it item) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s%d@%v", it.key, it.n, time.Since(j.start)))
}

func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	assert.Equal(t, lines, j.lines, "what ran")
}

func TestKeysRunSideBySideAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 8},
			func(_ context.Context, it item) pipeline.Decision {
				time.Sleep(time.Duration(it.n) * time.Second)
				j.note(it)
				return pipeline.Done()
			})
		submit(t, l, item{"a", 6}, item{"a", 1}, item{"b", 2}, item{"c", 4}, item{"b", 1})
		time.Sleep(time.Minute)
		j.want(t, "b2@2s", "b1@3s", "c4@4s", "a6@6s", "a1@7s")
	})
}

// With one worker every key "hashes to the same worker": a key that waits must still not hold up
// other keys.
func TestWaitingKeyGivesItsWorkerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, waited := newJournal(), false
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1},
			func(_ context.Context, it item) pipeline.Decision {
				j.note(it)
				if it == (item{"a", 1}) && !waited {
					waited = true
					return pipeline.RetryAfter(time.Hour)
				}
				return pipeline.Done()
			})
		submit(t, l, item{"a", 1}, item{"a", 2}, item{"b", 1}, item{"c", 1}, item{"b", 2})
		synctest.Wait()
		want := pipeline.KeyQueueStats{Items: 2, Keys: 1, Parked: 1}
		assert.Equal(t, want, l.Stats(), "while a waits")
		time.Sleep(2 * time.Hour)
		j.want(t, "a1@0s", "b1@0s", "c1@0s", "b2@0s", "a1@1h0m0s", "a2@1h0m0s")
		assert.Zero(t, l.Stats(), "after all finished")
	})
}

func TestBlockedHandlerHoldsOnlyItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, release := newJournal(), make(chan struct{})
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 2},
			func(_ context.Context, it item) pipeline.Decision {
				if it.key == "stuck" {
					<-release
				}
				j.note(it)
				return pipeline.Done()
			})
		submit(t, l, item{"stuck", 1}, item{"stuck", 2}, item{"a", 1}, item{"b", 1}, item{"a", 2})
		synctest.Wait()
		j.want(t, "a1@0s", "b1@0s", "a2@0s")
		assert.Equal(t, pipeline.KeyQueueStats{Items: 2, Keys: 1, Running: 1}, l.Stats())
		close(release)
	})
}

func TestRetryAtOnceLetsOthersPass(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			j, tries := newJournal(), 0
			gate := make(chan struct{})
			l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1},
				func(_ context.Context, it item) pipeline.Decision {
					<-gate
					j.note(it)
					if tries++; it.key == "a" && tries < 4 {
						return pipeline.RetryAfter(d)
					}
					return pipeline.Done()
				})
			submit(t, l, item{"a", 1}, item{"a", 2}, item{"b", 1})
			close(gate)
			synctest.Wait()
			j.want(t, "a1@0s", "b1@0s", "a1@0s", "a1@0s", "a2@0s")
		})
	}
}

func TestHotKeyTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, gate := newJournal(), make(chan struct{})
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1},
			func(_ context.Context, it item) pipeline.Decision {
				<-gate
				j.note(it)
				return pipeline.Done()
			})
		submit(t, l, item{"hot", 1}, item{"hot", 2}, item{"hot", 3}, item{"a", 1}, item{"b", 1})
		close(gate)
		synctest.Wait()
		j.want(t, "hot1@0s", "a1@0s", "b1@0s", "hot2@0s", "hot3@0s")
	})
}

func TestOrders(t *testing.T) {
	// Each item takes a second; how long all take shows which ran side by side.
	keyed := [][]byte{[]byte("a"), []byte("a"), []byte("b"), {}, {}, {}, nil, nil, nil, nil}
	for _, row := range []struct {
		name   string
		order  pipeline.Order
		want   time.Duration
		queues int
	}{
		{"by key: the empty key is one, no key is none", pipeline.ByKey, 3 * time.Second, 7},
		{"by partition", pipeline.ByPartition, 10 * time.Second, 1},
		{"unordered", pipeline.Unordered, time.Second, 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last time.Duration
				var mu sync.Mutex
				start := time.Now()
				l := newKeyQueues(t, pipeline.KeyQueuesConfig{Order: row.order},
					func(context.Context, item) pipeline.Decision {
						time.Sleep(time.Second)
						mu.Lock()
						defer mu.Unlock()
						last = time.Since(start)
						return pipeline.Done()
					})
				for i, key := range keyed {
					require.NoError(t, l.Submit(key, item{string(key), i}))
				}
				assert.Equal(t, row.queues, l.Stats().Keys)
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, row.want, last, "how long it took")
			})
		})
	}
}

// A client reuses the memory of its keys.
func TestSubmitCopiesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, func(context.Context,
			item) pipeline.Decision {
			<-gate
			return pipeline.Done()
		})
		key := []byte("a")
		for _, again := range []byte("bc") {
			require.NoError(t, l.Submit(key, item{}))
			key[0] = again
		}
		// The first queue must still answer to "a", though its key's memory says "c".
		require.NoError(t, l.Submit([]byte("a"), item{}))
		assert.Equal(t, 2, l.Stats().Keys, "a and b")
		close(gate)
	})
}

// A queue is reused by the next key; neither its old key nor its old timer may show.
func TestKeyQueuesAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		tried := map[item]bool{}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1},
			func(_ context.Context, it item) pipeline.Decision {
				j.note(it)
				if !tried[it] {
					tried[it] = true
					return pipeline.RetryAfter(time.Duration(it.n) * time.Second)
				}
				return pipeline.Done()
			})
		for n := range 3 {
			for _, key := range []string{"a", "b"} {
				submit(t, l, item{key, n + 1})
				time.Sleep(10 * time.Second)
			}
		}
		j.want(t, "a1@0s", "a1@1s", "b1@10s", "b1@11s", "a2@20s", "a2@22s",
			"b2@30s", "b2@32s", "a3@40s", "a3@43s", "b3@50s", "b3@53s")
	})
}

func TestStopDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		intake, cancel := context.WithCancelCause(t.Context())
		var stops []error
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 2, OnStop: func(err error) {
			stops = append(stops, err)
			cancel(err)
		}}, func(_ context.Context, it item) pipeline.Decision {
			time.Sleep(time.Duration(it.n) * time.Second)
			switch it.key {
			case "bad":
				return pipeline.Stop(errAsked)
			case "late":
				return pipeline.Stop(errors.New("too late to matter"))
			}
			return pipeline.RetryAfter(time.Second)
		})
		submit(t, l, item{"bad", 1}, item{"late", 2}, item{"bad", 3}, item{"a", 0})
		time.Sleep(time.Minute)
		assert.ErrorIs(t, l.Err(), errAsked)
		assert.Len(t, stops, 1)
		assert.ErrorIs(t, context.Cause(intake), errAsked)
		assert.ErrorIs(t, l.Submit([]byte("a"), item{}), pipeline.ErrStopped, "Submit after a Stop")
		left := l.Drain(t.Context())
		want := []item{{"bad", 1}, {"bad", 3}, {"late", 2}, {"a", 0}}
		assert.Equal(t, pipeline.Drained[item]{Pending: want}, left)
	})
}

func TestStopWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, func(context.Context,
			item) pipeline.Decision {
			return pipeline.Stop(nil)
		})
		submit(t, l, item{"a", 1})
		synctest.Wait()
		assert.ErrorIs(t, l.Err(), pipeline.ErrStopped)
	})
}

// Forgetting to answer must not look like success, however it is forgotten.
func TestNoDecision(t *testing.T) {
	for name, process := range map[string]func(context.Context, item) pipeline.Decision{
		"zero decision": func(context.Context, item) pipeline.Decision {
			return pipeline.Decision{}
		},
		"goroutine ends": func(context.Context, item) pipeline.Decision {
			runtime.Goexit()
			return pipeline.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stop error
				gate := make(chan struct{})
				l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1, OnStop: func(err error) {
					stop = err
				}},
					func(ctx context.Context, it item) pipeline.Decision {
						<-gate
						return process(ctx, it)
					})
				submit(t, l, item{"a", 1}, item{"a", 2})
				close(gate)
				synctest.Wait()
				left := l.Drain(t.Context())
				assert.ErrorIs(t, l.Err(), pipeline.ErrNoDecision)
				assert.ErrorIs(t, stop, pipeline.ErrNoDecision)
				assert.Equal(t, pipeline.Drained[item]{Pending: []item{{"a", 1}, {"a", 2}}}, left)
			})
		})
	}
}

func TestKeyQueuesConfig(t *testing.T) {
	process := func(context.Context, item) pipeline.Decision { return pipeline.Done() }
	for _, row := range []struct {
		name    string
		cfg     pipeline.KeyQueuesConfig
		process func(context.Context, item) pipeline.Decision
		want    string
	}{
		{"no process", pipeline.KeyQueuesConfig{}, nil, "process"},
		{"negative workers", pipeline.KeyQueuesConfig{Workers: -1}, process, "Workers"},
		{"unknown order", pipeline.KeyQueuesConfig{Order: 3}, process, "Order"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, err := pipeline.NewKeyQueues(t.Context(), row.cfg, row.process)
			assert.Nil(t, l)
			require.ErrorContains(t, err, row.want)
			assert.True(t, strings.HasPrefix(err.Error(), "pipeline: "), err)
		})
	}
}
