package dedup

// NewLayered is the store that New makes of Config.Leases and its own, for tests that need no
// Deduper.
func NewLayered(store Store, cfg Config) (Store, error) { return newLayered(store, &cfg) }
