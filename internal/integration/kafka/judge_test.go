package kafka_test

import (
	"context"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/driver"
)

// wantAll is how most scenarios end: everything is committed in time, the members leave,
// every id had its effect once and in order and is on record, and nothing is left behind.
func (s *scene) wantAll(limit time.Duration, members ...*member) {
	s.t.Helper()
	s.wantCommittedToEnd(limit)
	for _, m := range members {
		m.leave(s.t)
	}
	s.wantEffects()
}

// wantEffects requires that every id had its effect once and in order, and is on record,
// and that nothing is left behind. The members must have left.
func (s *scene) wantEffects() {
	s.t.Helper()
	if s.ledger != nil {
		s.ledger.load(s)
	}
	s.wantOnce()
	s.want("out of order", s.disorder())
	s.wantRecorded()
	s.wantNothingLeft()
}

// want reports what an oracle has found.
func (s *scene) want(oracle string, found []string) {
	s.t.Helper()
	assert.Empty(s.t, found, oracle)
}

// wantOnce requires one effect of every id that was produced.
func (s *scene) wantOnce() {
	s.t.Helper()
	s.want("effects", s.notOnce())
}

// wantRecorded requires that every id that was produced is on record as done.
func (s *scene) wantRecorded() {
	s.t.Helper()
	s.want("not on record", s.records(s.ids()))
}

// wantNothingLeft requires that no claim and no goroutine is left behind.
func (s *scene) wantNothingLeft() {
	s.t.Helper()
	s.want("claims left", s.held())
	wantNoGoroutines(s.t)
}

// notOnce returns the ids that had no effect or several. It also reports effects of ids that were
// not produced.
func (s *scene) notOnce() (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.ids()
	for _, id := range ids {
		if n := s.effects[id]; n != 1 {
			found = append(found, fmt.Sprintf("%s had %d effects", id, n))
		}
	}
	if len(s.effects) > len(ids) {
		found = append(found, fmt.Sprintf("%d ids had an effect, %d were sent",
			len(s.effects), len(ids)))
	}
	return found
}

// disorder returns where the first effects of a key in one partition did not come in the order of
// its messages. It ignores second effects, which come late.
func (s *scene) disorder() (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type queue struct {
		partition int32
		key       string
	}
	last, seen := map[queue]int64{}, map[string]bool{}
	for _, e := range s.order {
		if e.key == "" || seen[e.id] {
			continue
		}
		seen[e.id] = true
		q := queue{e.partition, e.key}
		if before, ok := last[q]; ok && e.offset < before {
			found = append(found, fmt.Sprintf("key %q of partition %d: %d after %d", e.key,
				e.partition, e.offset, before))
		}
		last[q] = e.offset
	}
	return found
}

// held returns the ids that are still claimed. At the end each id should be done, or free.
func (s *scene) held() (found []string) {
	if s.ledger != nil {
		return nil
	}
	for _, id := range s.ids() {
		if state := s.stateOf(id); state == driver.StateInProgress {
			found = append(found, fmt.Sprintf("%s is %v", id, state))
		}
	}
	return found
}

// ids returns the ids that were produced, each once.
func (s *scene) ids() []string {
	ids := map[string]bool{}
	for _, log := range s.log {
		for _, id := range log {
			if id != "" {
				ids[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// stateOf returns the state of an id in the store.
func (s *scene) stateOf(id string) driver.State {
	key, err := driver.NewID("t", sceneScope, id)
	if err != nil {
		panic(err) // ids of the tests fit
	}
	return s.store.Lookup(context.Background(), []driver.ID{key})[0].Record.State
}

// sceneLabel marks the goroutines of members with the name of their test, because several tests run
// at the same time.
const sceneLabel = "scene"

// wantNoGoroutines waits until no goroutine that members of this test have started runs code of
// kafkaadapter or dedup.
func wantNoGoroutines(t *testing.T) {
	t.Helper()
	mine := fmt.Sprintf("%q:%s", sceneLabel, strconv.Quote(t.Name()))
	eventually(t, 10*time.Second, func() (bool, string) {
		var profile strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			return false, err.Error()
		}
		left := slices.DeleteFunc(strings.Split(profile.String(), "\n\n"), func(g string) bool {
			return !strings.Contains(g, mine) ||
				!strings.Contains(g, "onceward/kafkaadapter") &&
					!strings.Contains(g, "onceward/dedup")
		})
		return len(left) == 0, strings.Join(left, "\n\n")
	})
}
