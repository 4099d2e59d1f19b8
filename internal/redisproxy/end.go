package redisproxy

import "net"

// outstanding counts the requests that the client is still waiting for.
func (s *session) outstanding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answering {
		return len(s.queue) - 1
	}
	return len(s.queue)
}

// answer notes that the oldest request is being answered. It is called before the write. If it were
// called after, the client's next command could arrive first, and would look like a part of the
// same pipeline.
func (s *session) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answering = true
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// enqueue is called before the request is sent, so that its reply always finds it. It
// returns false when the session is over.
func (s *session) enqueue(e *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.queue = append(s.queue, e)
	}
	return !s.over
}

func (s *session) head() *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

// pop takes an answered request from the queue and returns the rule that ends the
// session now, or nil. It reads the rule under the lock, after the delivery, because a later
// request may be dropped while the reply is on its way to the client.
func (s *session) pop(e *exchange) *firedRule {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.answering = s.queue[1:], false
	return e.then
}

// endAfterQueue ends the session when all requests that were sent have been answered,
// which may be now.
func (s *session) endAfterQueue(then *firedRule) {
	s.mu.Lock()
	if n := len(s.queue); n > 0 {
		s.queue[n-1].then = then
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.end(then)
}

// end carries out the rule that ends the session, unless it is over.
func (s *session) end(why *firedRule) {
	if s.begin(why) {
		s.leave(why)
	}
}

// tear does what end does, and writes part as the last bytes that the client gets.
func (s *session) tear(why *firedRule, part []byte) {
	if s.begin(why) {
		_, _ = s.client.Write(part) // on an error the client has gone already
		s.leave(why)
	}
}

// begin stops both pumps. A session ends once.
func (s *session) begin(why *firedRule) bool {
	s.mu.Lock()
	first := !s.over
	s.over = true
	s.mu.Unlock()
	if first {
		s.p.record(why.rule)
	}
	return first
}

func (s *session) leave(why *firedRule) {
	switch {
	case why.rule.Hang:
		// Both connections stay open, and both pumps discard what they read.
	case why.rule.Action == TearReply || why.rule.Action == CutPipeline:
		s.finish()
	default:
		s.reset()
	}
	why.rule.notify(why.req)
}

// finish ends the stream in order, so that the delivered bytes arrive: a reset may
// overtake them. The client closes when it has read the end.
func (s *session) finish() {
	if tcp, ok := s.client.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		return
	}
	s.close()
}

// reset makes the client see "connection reset by peer".
func (s *session) reset() {
	if tcp, ok := s.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if it fails, the client sees the end of the stream
	}
	s.close()
}

// serverGone tells the client that the server is gone, unless the session is in a black hole: then
// the client must not see a change.
func (s *session) serverGone() {
	if !s.isOver() {
		s.close()
	}
}
