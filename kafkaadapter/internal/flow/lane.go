package flow

import "time"

// maxFreeLanes bounds how many empty lanes are kept for reuse.
const maxFreeLanes = 1024

type laneState uint8

const (
	laneIdle    laneState = iota // nobody will run it: new, or stopped
	laneReady                    // in the ready queue
	laneRunning                  // some of its items were handed to the process function
	laneParked                   // its timer will make it ready
)

// lane is the queue of one key: what runs, and what comes after it. Nothing of a lane
// starts until everything that runs has been settled.
type lane[T any] struct {
	items ring[T]
	run   []running[T] // in order; empty unless laneRunning
	open  int          // of run, how many are not settled
	key   string
	keyed bool // in byKey under key
	state laneState
	timer *time.Timer // made at the first park, then reset

	prev, next *lane[T] // in laneList
}

// running is an item in the hands of the process function, or of whom it has handed it to.
type running[T any] struct {
	item    T
	verdict Verdict // zero until it is settled
	settled bool
}

// laneList links all lanes with items, oldest first, so that Drain also finds those
// that no key leads to.
type laneList[T any] struct {
	first, last *lane[T]
	len         int
}

func (ls *laneList[T]) push(l *lane[T]) {
	l.prev, l.next = ls.last, nil
	if ls.last == nil {
		ls.first = l
	} else {
		ls.last.next = l
	}
	ls.last = l
	ls.len++
}

func (ls *laneList[T]) remove(l *lane[T]) {
	if l.prev == nil {
		ls.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		ls.last = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
	ls.len--
}

// laneOf returns the lane for key, an empty new one if there is none.
func (l *Lanes[T]) laneOf(key []byte) *lane[T] {
	keyed := l.order == ByPartition || l.order == ByKey && key != nil
	if l.order == ByPartition {
		key = nil
	}
	if keyed {
		if lane := l.byKey[string(key)]; lane != nil {
			return lane
		}
	}
	lane := l.newLane()
	if keyed {
		lane.key, lane.keyed = string(key), true
		l.byKey[lane.key] = lane
	}
	l.all.push(lane)
	return lane
}

func (l *Lanes[T]) newLane() *lane[T] {
	last := len(l.free) - 1
	if last < 0 {
		return new(lane[T])
	}
	lane := l.free[last]
	l.free = l.free[:last]
	return lane
}

// dropLane forgets a lane that has become empty.
func (l *Lanes[T]) dropLane(lane *lane[T]) {
	l.all.remove(lane)
	if lane.keyed {
		delete(l.byKey, lane.key)
	}
	lane.key, lane.keyed, lane.state = "", false, laneIdle
	if len(l.free) < maxFreeLanes {
		l.free = append(l.free, lane)
	}
}
