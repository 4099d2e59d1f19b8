package flow

// work is a worker: it runs one item of each ready lane in turn until there is none.
func (l *Lanes[T]) work() {
	var running *lane[T]
	l.mu.Lock()
	defer func() {
		// Reached with an item only when process ended this goroutine, by
		// runtime.Goexit or a panic. A panic goes on and ends the program, as it must:
		// nothing here knows what the handler left half done.
		var stop error
		if running != nil {
			l.mu.Lock()
			stop = l.settle(running, Verdict{})
		}
		l.leave()
		l.mu.Unlock()
		if stop != nil && l.onStop != nil {
			l.onStop(stop)
		}
	}()
	for {
		lane := l.takeReady()
		if lane == nil {
			return
		}
		item := *lane.items.at(0)
		l.mu.Unlock()
		running = lane
		verdict := l.process(l.ctx, item)
		running = nil
		l.mu.Lock()
		if stop := l.settle(lane, verdict); stop != nil && l.onStop != nil {
			l.mu.Unlock()
			l.onStop(stop)
			l.mu.Lock()
		}
	}
}

// takeReady returns the lane to run next and marks it running, or nil.
func (l *Lanes[T]) takeReady() *lane[T] {
	if l.ready.len() == 0 || l.stopped() {
		return nil
	}
	lane := l.ready.pop()
	lane.state = laneRunning
	return lane
}

// settle does what the verdict on lane's head asks for. It returns the error of the
// first Stop, so that it can be reported outside of the lock.
func (l *Lanes[T]) settle(lane *lane[T], v Verdict) (firstStop error) {
	lane.state = laneIdle
	switch v.kind {
	case verdictDone:
		lane.items.pop()
		l.items--
		if lane.items.len() == 0 {
			l.dropLane(lane)
			return nil
		}
	case verdictRetry:
		if v.after > 0 && !l.stopped() {
			l.park(lane, v.after)
			return nil
		}
	case verdictStop:
		firstStop = l.stop(v.err)
	default:
		firstStop = l.stop(ErrNoVerdict)
	}
	// When stopped, the lane stays idle with its items until Drain collects them.
	if !l.stopped() {
		l.makeReady(lane)
	}
	return firstStop
}

// stop keeps the first error and returns it, nil for a later one.
func (l *Lanes[T]) stop(err error) error {
	if l.err != nil {
		return nil
	}
	l.err = err
	return err
}

// leave ends a worker.
func (l *Lanes[T]) leave() {
	l.active--
	if l.active == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}
