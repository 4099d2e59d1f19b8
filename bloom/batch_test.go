package bloom

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// WhereAll gives every id the answer and the reason of Where, and counts it the same way.
func TestWhereAllIsWhere(t *testing.T) { bothKinds(t, testWhereAllIsWhere) }

func testWhereAllIsWhere(t *testing.T) {
	grown := small(&hand{})
	grown.MaxBytes = 1 << 20
	for name, c := range map[string]struct {
		o    Options
		fill uint64 // ids in generation -1, which is planned for 1000
		feed func(t *testing.T, f *Filter) *Feed
		want Reason // that must be among the answers
	}{
		"covered": {small(&hand{}), 900, func(t *testing.T, f *Filter) *Feed {
			return covering(t, f)
		}, None},
		"loading": {small(&hand{}), 900, func(_ *testing.T, f *Filter) *Feed {
			return f.Begin(source)
		}, Loading},
		"grown": {grown, 5000, func(t *testing.T, f *Filter) *Feed {
			return covering(t, f)
		}, None},
		"saturated": {small(&hand{}), 30_000, func(t *testing.T, f *Filter) *Feed {
			return covering(t, f)
		}, Saturated},
	} {
		t.Run(name, func(t *testing.T) {
			f := mustNew(t, c.o)
			feed := c.feed(t, f)
			for n := range c.fill {
				require.NoError(t, feed.Add(-1, id(n)))
			}
			require.NoError(t, feed.Add(-4, id(7)))
			require.NoError(t, feed.Add(0, id(1<<40)))
			seen := map[Reason]bool{}
			for _, size := range []int{0, 1, group - 1, group, group + 1, 3*group + 5} {
				batch := make([]Query, size)
				for i := range batch {
					batch[i] = Query{ID: id(uint64(i/2) | uint64(i%2)<<40), In: 1 << 63, Answer: 77,
						Reason: 77}
				}
				before := f.Stats()
				oldest := f.WhereAll(batch)
				all := f.Stats()
				for i, q := range batch {
					o, in, answer, reason := f.Where(q.ID)
					require.Equal(t, o, oldest, "%d of %d", i, size)
					require.Equal(t, Query{ID: q.ID, In: in, Answer: answer, Reason: reason}, q,
						"%d of %d", i, size)
					seen[q.Reason] = true
				}
				one := f.Stats()
				assert.True(t, sameCounts(before, all, one),
					"%d: counted %v %v, then by Where %v %v", size, all.Answers, all.Reasons,
					one.Answers, one.Reasons)
			}
			assert.True(t, seen[c.want], "no answer for reason %q: %v", c.want, seen)
		})
	}
}

// sameCounts reports whether as much was counted from a to b as from b to c.
func sameCounts(a, b, c Stats) bool {
	for i := range a.Answers {
		if b.Answers[i]-a.Answers[i] != c.Answers[i]-b.Answers[i] {
			return false
		}
	}
	for i := range a.Reasons {
		if b.Reasons[i]-a.Reasons[i] != c.Reasons[i]-b.Reasons[i] {
			return false
		}
	}
	return true
}

// full returns a filter for keys in a window. Its six generations are as full as planned.
func full(b *testing.B, keys float64) *Filter {
	f := mustNew(b, Options{Window: 1000 * time.Second, Rate: keys / 1000})
	feed, n, err := covering(b, f), uint64(0), error(nil)
	for gen := int64(-5); gen <= 0; gen++ {
		for range f.plan.SliceKeys {
			err = errors.Join(err, feed.Add(gen, id(n)))
			n++
		}
	}
	require.NoError(b, err)
	return f
}

func BenchmarkFilter(b *testing.B) {
	for _, size := range []struct {
		name string
		keys float64
	}{{"100k", 1e5}, {"1M", 1e6}, {"10M", 1e7}} {
		b.Run(size.name, func(b *testing.B) {
			f := full(b, size.keys)
			known := uint64(size.keys)
			batch := make([]Query, 256)
			for _, c := range []struct {
				name string
				do   func(n uint64)
			}{
				{"check/hit", func(n uint64) { f.Check(id(n * 7919 % known)) }},
				{"check/miss", func(n uint64) { f.Check(id(n*7919 | 1<<40)) }},
				{"where/miss", func(n uint64) { f.Where(id(n*7919 | 1<<40)) }},
				{"add", func(n uint64) { f.Add(id(n * 7919 % known)) }},
				{"whereAll/256/miss", func(n uint64) {
					for i := range batch {
						batch[i].ID = id((n*256+uint64(i))*7919 | 1<<40)
					}
					f.WhereAll(batch)
				}},
			} {
				b.Run(c.name, func(b *testing.B) {
					b.ReportAllocs()
					n := uint64(0)
					for b.Loop() {
						n++
						c.do(n)
					}
				})
			}
		})
	}
}
