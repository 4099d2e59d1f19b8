package owned

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// TestTwoMappings: of two processes that map keys otherwise the second is refused, as long as
// anything is held, and the first goes on as if nobody had come. Each would else take the mapping
// back from the other.
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
			if _, err := s.Acquire(w.Context(), theirs); !errors.Is(err, ErrMapping) ||
				!strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
				w.Errorf("another mapping while a partition is held: %v", err)
			}
		}
		if after := record(); after != before {
			w.Errorf("what was refused has changed the record from\n%s to\n%s", before, after)
		}
		pass(w.opts.Lease)
		w.wants("at the first", w.claim(first, request(1)), dedup.Acquired, 1)
		if st := o.Stats(); context.Cause(o.Context()) != nil || st.Shared || st.Saved != 1 {
			w.Errorf("the first is to go on: %v, %+v", context.Cause(o.Context()), st)
		}

		must(w, o.Release(w.Context())) // nobody holds anything: the mapping changes
		is, err := second.Acquire(w.Context(), theirs)
		must(w, err)
		if !is.Stats().Shared {
			w.Error("keys have moved, and the source is not shared")
		}
		mine.Count = 3
		if _, err := first.Acquire(w.Context(), mine); !errors.Is(err, ErrMapping) {
			w.Errorf("the mapping before: %v", err)
		}
	})
}

// TestAChangeIsLoud: from a change of the count on every key is claimed at the inner store, for
// more than a Window. Who operates it is told why, at once, and once.
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
		if shared != 0 || strings.Contains(text.String(), "WARN") {
			w.Errorf("a source that is new: told of shared %d times, and %s", shared, text.String())
		}
		more := only
		more.Number, more.Count = 1, 3
		_, err := s.Acquire(w.Context(), more)
		must(w, err)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if shared != 1 {
			w.Errorf("the observer was told %d times that it is shared", shared)
		}
		log := text.String()
		for _, want := range []string{"level=WARN", "source=" + only.Source, "partitions=3",
			"before=1", "span=" + s.registry.span().String()} {
			if !strings.Contains(log, want) {
				w.Errorf("of the change %s is not told: %s", want, log)
			}
		}
		if n := strings.Count(log, "mapping of a source"); n != 1 {
			w.Errorf("it was told %d times", n)
		}
	})
}

// heard is a Logger whose warnings are counted by what they begin with.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

// lines are those that have all of these.
func (h *heard) lines(with ...string) (lines []string) {
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

// TestEveryMemberTellsOfAChange: who begins a change is one of many, and the operator may look at
// the log of another. A member that was there tells what has changed, one that starts meanwhile
// that the source is shared, each once.
func TestEveryMemberTellsOfAChange(t *testing.T) {
	story(t, func(w *world) {
		member := func() (*Store, *heard) {
			h := new(heard)
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
		for name, h := range map[string]*heard{"who was there": heardThere,
			"who began it": heardBegan} {
			if lines := h.lines("level=WARN", "mapping of a source", "source="+only.Source,
				"partitions=4", "before=2"); len(lines) != 1 {
				w.Errorf("%s told of the change %d times: %q", name, len(lines), lines)
			}
		}
		if lines := heardLate.lines("level=WARN", "source is shared", "source="+only.Source,
			"until="); len(lines) != 1 {
			w.Errorf("who came late told of it %d times: %q", len(lines), lines)
		}
		for name, h := range map[string]*heard{"who was there": heardThere,
			"who began it": heardBegan, "who came late": heardLate} {
			if lines := h.lines("shared"); len(lines) > 1 {
				w.Errorf("%s tells it twice: %q", name, lines)
			}
		}

		pass(there.registry.span() + time.Minute)
		after, heardAfter := member()
		must(w, last.Release(w.Context()))
		own(after, at(1, 4))
		if lines := heardAfter.lines("level=WARN"); len(lines) != 0 {
			w.Errorf("all is over, and somebody who starts now warns: %q", lines)
		}
	})
}
