package kafkadriver

import (
	"maps"
	"slices"
	"sync"
)

// set is a set of keys. The zero value is ready, and safe for concurrent use.
type set[K comparable] struct {
	mu   sync.Mutex
	keys map[K]struct{}
}

// add reports whether the key is new.
func (s *set[K]) add(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = make(map[K]struct{})
	}
	before := len(s.keys)
	s.keys[key] = struct{}{}
	return len(s.keys) > before
}

func (s *set[K]) has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.keys[key]
	return ok
}

func (s *set[K]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// all returns the keys in no particular order.
func (s *set[K]) all() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.keys))
}
