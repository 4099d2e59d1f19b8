package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// Watermill is its deduplicator middleware with the only repository that it brings: a map
// in this process. It knows nothing of other processes and forgets at a restart, and it
// marks a message before its handler has run.
func Watermill() (Peer, error) {
	repository, err := middleware.NewMapExpiringKeyRepository(Window)
	if err != nil {
		return Peer{}, fmt.Errorf("peer: watermill: %w", err)
	}
	dedup := &middleware.Deduplicator{KeyFactory: middleware.NewMessageHasherFromMetadataField("id"), Repository: repository, Timeout: time.Minute}
	return Peer{Name: "watermill deduplicator (in process)", Cycle: func(ctx context.Context, key string) error {
		msg := message.NewMessage(key, nil)
		msg.SetContext(ctx)
		msg.Metadata.Set("id", key)
		duplicate, err := dedup.IsDuplicate(msg)
		if err == nil && duplicate {
			return notNew(key)
		}
		return err
	}}, nil
}

// Map is the least that an answer from memory can cost: an exact map behind a mutex, with
// an expiry per key.
type Map struct {
	mu   sync.Mutex
	keys map[string]time.Time
}

// NewMap returns a map that remembers keys for the Window.
func NewMap(keys []string) *Map {
	m := &Map{keys: make(map[string]time.Time, len(keys))}
	until := time.Now().Add(Window)
	for _, key := range keys {
		m.keys[key] = until
	}
	return m
}

// Seen reports whether the map remembers key.
func (m *Map) Seen(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.keys[key]
	return ok && time.Now().Before(until)
}
