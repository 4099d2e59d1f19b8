package pipeline

// minRing is the smallest capacity of a ring that holds anything.
const minRing = 8

// ring is a queue in a circular slice whose length is a power of two. It doubles
// when full and halves when three quarters are empty, so that a burst does not keep
// its memory, and every operation is O(1) amortized. The zero ring is empty and
// ready to use; it is not safe for concurrent use.
type ring[T any] struct {
	buf  []T
	head int
	size int
}

func (r *ring[T]) len() int { return r.size }

// at returns the i-th element from the front. The pointer is valid until the next
// push or pop.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.size == len(r.buf) {
		r.resize(max(minRing, 2*len(r.buf)))
	}
	r.size++
	*r.at(r.size - 1) = v
}

// unpop puts v before the front element.
func (r *ring[T]) unpop(v T) {
	if r.size == len(r.buf) {
		r.resize(max(minRing, 2*len(r.buf)))
	}
	r.head = (r.head - 1) & (len(r.buf) - 1)
	r.size++
	*r.at(0) = v
}

// pop removes the front element. It clears its slot, so that the element can be collected.
func (r *ring[T]) pop() T {
	front := r.at(0)
	v := *front
	clear(r.buf[r.head : r.head+1])
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.size--
	// A quarter, not a half: a queue that swings around a power of two would copy
	// itself on every swing.
	if len(r.buf) > minRing && r.size <= len(r.buf)/4 {
		r.resize(len(r.buf) / 2)
	}
	return v
}

func (r *ring[T]) resize(capacity int) {
	buf := make([]T, capacity)
	for i := range r.size {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
