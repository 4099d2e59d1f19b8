package owned

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

// TestTwoMappings: two processes map keys differently. The second is refused as long as a partition
// is held, and the first continues undisturbed. Otherwise each would take the mapping back from the
// other.
func TestTwoMappings(t *testing.T) {
	story(t, func(w *world) {
		first, second := w.process(), w.process()
		// a pipe holds nothing: both ends would be writing
		first.registry.batch, second.registry.batch = 1, 1
		mine := only
		mine.Count, mine.Mapping = 2, "a"
		o, err := first.Acquire(w.Context(), mine)
		must(w, err)
		synctest.Wait()
		theirs := mine
		theirs.Number, theirs.Count, theirs.Mapping = 1, 3, "b"
		record := func() string { return w.client.Get(w.Context(), mapKey(w.opts.Prefix)).Val() }
		before := record()
		for _, s := range []*Store{second, first} {
			_, err := s.Acquire(w.Context(), theirs)
			assert.ErrorIs(w, err, ErrMapping, "another mapping while a partition is held")
			assert.ErrorContains(w, err, `"a"`)
			assert.ErrorContains(w, err, `"b"`)
		}
		assert.Equal(w, before, record(), "what was refused has changed the record")
		pass(w.opts.Lease)
		w.wants("at the first", w.claim(first, request(1)), dedup.Acquired, 1)
		st := o.Stats()
		assert.True(w, context.Cause(o.Context()) == nil && !st.Shared && st.Saved == 1,
			"the first is to continue: %v, %+v", context.Cause(o.Context()), st)

		must(w, o.Release(w.Context())) // nobody holds anything: the mapping changes
		is, err := second.Acquire(w.Context(), theirs)
		must(w, err)
		assert.True(w, is.Stats().Shared, "keys have moved, and the source is not shared")
		mine.Count = 3
		_, err = first.Acquire(w.Context(), mine)
		assert.ErrorIs(w, err, ErrMapping, "the mapping before")
	})
}

// TestAChangeIsLoud: after a change of the count every key is claimed at the inner store, for more
// than a Window. The log says why, at once and only once.
func TestAChangeIsLoud(t *testing.T) {
	story(t, func(w *world) {
		var mu sync.Mutex
		var text bytes.Buffer
		var shared int
		w.opts.Logger = slog.New(slog.NewTextHandler(&text, nil))
		w.opts.Observer.FilterState = func(e dedup.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Reason == "shared" {
				shared++
			}
		}
		s := w.process()
		s.registry.batch = 1
		w.own(s)
		assert.Equal(w, 0, shared, "the observer of a source that is new")
		assert.NotContains(w, text.String(), "WARN")
		more := only
		more.Number, more.Count = 1, 3
		_, err := s.Acquire(w.Context(), more)
		must(w, err)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(w, 1, shared, "the observer was told")
		log := text.String()
		for _, want := range []string{"level=WARN", "source=" + only.Source, "partitions=3",
			"before=1", "span=" + s.registry.span().String()} {
			assert.Contains(w, log, want, "the log of the change")
		}
		assert.Equal(w, 1, strings.Count(log, "mapping of a source"), "how often it was told")
	})
}

// logLines is a Logger whose warnings are counted by what they begin with.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *logLines) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

// lines returns the lines that contain all of with.
func (h *logLines) lines(with ...string) (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(h.text.String()) {
		if !slices.ContainsFunc(with, func(part string) bool {
			return !strings.Contains(line, part)
		}) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestEveryMemberReportsAChange: the member that begins a change is one of many, and the operator
// may look at the log of another. A running member reports the change, and a member that starts
// meanwhile reports that the source is shared, each once.
func TestEveryMemberReportsAChange(t *testing.T) {
	story(t, func(w *world) {
		member := func() (*Store, *logLines) {
			h := new(logLines)
			w.opts.Logger = slog.New(slog.NewTextHandler(h, nil))
			s := w.process()
			s.registry.batch = 1
			return s, h
		}
		at := func(number, count int32) Partition {
			p := only
			p.Number, p.Count = number, count
			return p
		}
		own := func(s *Store, p Partition) *Ownership {
			o, err := s.Acquire(w.Context(), p)
			must(w, err)
			synctest.Wait()
			return o
		}
		there, heardThere := member()
		own(there, at(0, 2))
		began, heardBegan := member()
		own(began, at(1, 2))
		own(began, at(2, 4))
		pass(time.Minute) // the others hear that theirs have ended
		own(there, at(0, 4))
		own(there, at(3, 4))
		late, heardLate := member()
		must(w, own(late, at(1, 4)).Release(w.Context()))
		last := own(late, at(1, 4))
		for name, h := range map[string]*logLines{"who was there": heardThere,
			"who began it": heardBegan} {
			lines := h.lines("level=WARN", "mapping of a source", "source="+only.Source,
				"partitions=4", "before=2")
			assert.Len(w, lines, 1, "how often %s told of the change", name)
		}
		lines := heardLate.lines("level=WARN", "source is shared", "source="+only.Source,
			"until=")
		assert.Len(w, lines, 1, "how often the member that came late told of it")
		for name, h := range map[string]*logLines{"who was there": heardThere,
			"who began it": heardBegan, "who came late": heardLate} {
			assert.LessOrEqual(w, len(h.lines("shared")), 1, "%s tells it twice", name)
		}

		pass(there.registry.span() + time.Minute)
		after, heardAfter := member()
		must(w, last.Release(w.Context()))
		own(after, at(1, 4))
		lines = heardAfter.lines("level=WARN")
		assert.Empty(w, lines, "all is over, and somebody who starts now warns")
	})
}
