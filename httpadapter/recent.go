package httpadapter

// recent is a map of at most twice half entries. It forgets the oldest entries: when its younger
// half is full, it drops the older half.
type recent[K comparable, V any] struct {
	half       int
	young, old map[K]V
}

// newRecent returns a map of at most limit entries, which is 2 or more.
func newRecent[K comparable, V any](limit int) recent[K, V] {
	return recent[K, V]{half: limit / 2, young: map[K]V{}}
}

func (r *recent[K, V]) get(key K) (V, bool) {
	if v, ok := r.young[key]; ok {
		return v, true
	}
	v, ok := r.old[key]
	return v, ok
}

func (r *recent[K, V]) put(key K, value V) {
	if _, ok := r.young[key]; !ok && len(r.young) >= r.half {
		r.old, r.young = r.young, make(map[K]V)
	}
	r.young[key] = value
}
