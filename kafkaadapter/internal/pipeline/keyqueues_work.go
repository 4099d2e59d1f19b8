package pipeline

import "cmp"

// work is a worker: it runs ready items until there are none.
func (k *KeyQueues[T]) work() {
	var tasks []Task[T]
	inside := false
	k.mu.Lock()
	defer func() {
		// inside is true here only if process ended this goroutine, by runtime.Goexit or a panic. A
		// panic continues and ends the program, as it must: nothing here knows what the handler
		// left half done.
		if inside {
			k.settleRest(tasks)
			k.mu.Lock()
		}
		k.leave()
		k.mu.Unlock()
	}()
	for {
		tasks = k.takeReady(tasks[:0])
		if len(tasks) == 0 {
			return
		}
		k.mu.Unlock()
		inside = true
		k.process(k.ctx, tasks)
		inside = false
		k.mu.Lock()
	}
}

// takeReady appends the items for one call of process: the head of each ready queue, and the items
// that may run with it.
func (k *KeyQueues[T]) takeReady(tasks []Task[T]) []Task[T] {
	for len(tasks) < k.batch && k.ready.len() > 0 && !k.stopped() {
		q := *k.ready.at(0)
		alone := k.isAlone(q)
		if alone && len(tasks) > 0 {
			break
		}
		k.ready.pop()
		q.state = queueRunning
		tasks = k.takeQueue(q, tasks, alone)
		if alone {
			break
		}
	}
	return tasks
}

func (k *KeyQueues[T]) isAlone(q *keyQueue[T]) bool {
	return k.alone != nil && k.alone(*q.items.at(0))
}

// takeQueue marks items of a queue as running, at least the head, and appends them to tasks.
func (k *KeyQueues[T]) takeQueue(q *keyQueue[T], tasks []Task[T], alone bool) []Task[T] {
	for first := true; first || !alone && len(tasks) < k.batch && q.items.len() > 0 &&
		!k.isAlone(q); first = false {
		item := q.items.pop()
		tasks = append(tasks, Task[T]{Item: item, k: k, queue: q, at: len(q.run)})
		q.run = append(q.run, running[T]{item: item})
		q.open++
		k.open++
	}
	return tasks
}

// settleRest settles the tasks that a process function left when it ended its goroutine.
func (k *KeyQueues[T]) settleRest(tasks []Task[T]) {
	for _, t := range tasks {
		if t.queue == nil { // handed over
			continue
		}
		k.mu.Lock()
		left := t.at < len(t.queue.run) && !t.queue.run[t.at].settled
		k.mu.Unlock()
		if left {
			t.Settle(Decision{})
		}
	}
}

// settleAll stores the decisions. A queue continues when all its running items are settled.
func (k *KeyQueues[T]) settleAll(tasks []Task[T], decisions []Decision) {
	var firstStop error
	k.mu.Lock()
	for i, t := range tasks {
		r := &t.queue.run[t.at]
		if r.settled {
			continue
		}
		r.decision, r.settled = decisions[i], true
		k.open--
		t.queue.open--
		if stop := k.stopFor(decisions[i]); stop != nil {
			firstStop = stop
		}
		if t.queue.open == 0 {
			k.conclude(t.queue)
		}
	}
	k.signalIdle()
	k.mu.Unlock()
	if firstStop != nil && k.onStop != nil {
		k.onStop(firstStop)
	}
}

// stopFor returns the error of the first decision that stops the queues, nil for all others.
func (k *KeyQueues[T]) stopFor(v Decision) error {
	if v.kind == decisionDone || v.kind == decisionRetry || k.err != nil {
		return nil
	}
	k.err = cmp.Or(v.err, ErrNoDecision)
	return k.err
}

// conclude carries out the decisions on the items that ran. Items that are not done stay at the
// head of the queue, in their order, and the first one's decision says when the queue runs again.
func (k *KeyQueues[T]) conclude(q *keyQueue[T]) {
	q.state = queueIdle
	var head Decision
	for i := len(q.run) - 1; i >= 0; i-- {
		r := &q.run[i]
		if r.decision.kind == decisionDone {
			k.items--
			continue
		}
		head = r.decision
		q.items.unpop(r.item)
	}
	clear(q.run)
	q.run = q.run[:0]
	switch {
	case q.items.len() == 0:
		k.dropQueue(q)
	case k.stopped(): // the queue stays idle with its items until Drain collects them
	case head.kind == decisionRetry && head.after > 0:
		k.park(q, head.after)
	default:
		k.makeReady(q)
	}
}

// leave ends a worker.
func (k *KeyQueues[T]) leave() {
	k.active--
	k.signalIdle()
}

// signalIdle wakes Drain when nothing runs any more.
func (k *KeyQueues[T]) signalIdle() {
	if k.active == 0 && k.open == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}
