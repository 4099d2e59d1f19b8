package flow

// work is a worker: it runs what is ready until there is nothing.
func (l *Lanes[T]) work() {
	var tasks []Task[T]
	inside := false
	l.mu.Lock()
	defer func() {
		// Reached inside only when process ended this goroutine, by runtime.Goexit or a
		// panic. A panic goes on and ends the program, as it must: nothing here knows what
		// the handler left half done.
		if inside {
			l.settleRest(tasks)
			l.mu.Lock()
		}
		l.leave()
		l.mu.Unlock()
	}()
	for {
		tasks = l.takeReady(tasks[:0])
		if len(tasks) == 0 {
			return
		}
		l.mu.Unlock()
		inside = true
		l.process(l.ctx, tasks)
		inside = false
		l.mu.Lock()
	}
}

// takeReady appends what one call of process gets: lanes that are ready, and of each what
// may run with its head.
func (l *Lanes[T]) takeReady(tasks []Task[T]) []Task[T] {
	for len(tasks) < l.batch && l.ready.len() > 0 && !l.stopped() {
		lane := *l.ready.at(0)
		alone := l.isAlone(lane)
		if alone && len(tasks) > 0 {
			break
		}
		l.ready.pop()
		lane.state = laneRunning
		tasks = l.takeLane(lane, tasks, alone)
		if alone {
			break
		}
	}
	return tasks
}

func (l *Lanes[T]) isAlone(lane *lane[T]) bool {
	return l.alone != nil && l.alone(*lane.items.at(0))
}

// takeLane moves items from the lane's queue to what runs, the head at least.
func (l *Lanes[T]) takeLane(lane *lane[T], tasks []Task[T], alone bool) []Task[T] {
	for first := true; first || !alone && len(tasks) < l.batch && lane.items.len() > 0 &&
		!l.isAlone(lane); first = false {
		item := lane.items.pop()
		tasks = append(tasks, Task[T]{Item: item, l: l, lane: lane, at: len(lane.run)})
		lane.run = append(lane.run, running[T]{item: item})
		lane.open++
		l.open++
	}
	return tasks
}

// settleRest settles what a process function has left when it ended its goroutine.
func (l *Lanes[T]) settleRest(tasks []Task[T]) {
	for _, t := range tasks {
		if t.lane == nil { // handed over
			continue
		}
		l.mu.Lock()
		left := t.at < len(t.lane.run) && !t.lane.run[t.at].settled
		l.mu.Unlock()
		if left {
			t.Settle(Verdict{})
		}
	}
}

// settleAll notes the verdicts, and lets lanes go on of which everything is settled.
func (l *Lanes[T]) settleAll(tasks []Task[T], verdicts []Verdict) {
	var firstStop error
	l.mu.Lock()
	for i, t := range tasks {
		r := &t.lane.run[t.at]
		if r.settled {
			continue
		}
		r.verdict, r.settled = verdicts[i], true
		l.open--
		t.lane.open--
		if stop := l.stopFor(verdicts[i]); stop != nil {
			firstStop = stop
		}
		if t.lane.open == 0 {
			l.conclude(t.lane)
		}
	}
	l.tellIdle()
	l.mu.Unlock()
	if firstStop != nil && l.onStop != nil {
		l.onStop(firstStop)
	}
}

// stopFor returns the error of the first verdict that stops the lanes, nil for others.
func (l *Lanes[T]) stopFor(v Verdict) error {
	err := v.err
	switch v.kind {
	case verdictDone, verdictRetry:
		return nil
	case verdictStop:
	default:
		err = ErrNoVerdict
	}
	if l.err != nil {
		return nil
	}
	l.err = err
	return err
}

// conclude does what the verdicts on what ran ask for. What is not done stays at the head
// of the lane, in its order, and the first of it says when.
func (l *Lanes[T]) conclude(lane *lane[T]) {
	lane.state = laneIdle
	var head Verdict
	for i := len(lane.run) - 1; i >= 0; i-- {
		r := &lane.run[i]
		if r.verdict.kind == verdictDone {
			l.items--
			continue
		}
		head = r.verdict
		lane.items.unpop(r.item)
	}
	clear(lane.run)
	lane.run = lane.run[:0]
	switch {
	case lane.items.len() == 0:
		l.dropLane(lane)
	case l.stopped(): // the lane stays idle with its items until Drain collects them
	case head.kind == verdictRetry && head.after > 0:
		l.park(lane, head.after)
	default:
		l.makeReady(lane)
	}
}

// leave ends a worker.
func (l *Lanes[T]) leave() {
	l.active--
	l.tellIdle()
}

// tellIdle wakes Drain when nothing runs any more.
func (l *Lanes[T]) tellIdle() {
	if l.active == 0 && l.open == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}
