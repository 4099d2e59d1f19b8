package redisproxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// session is one client connection with its server connection. Two pumps run it: one
// reads requests and forwards them, the other reads replies and delivers them. Only the
// second writes to the client.
type session struct {
	p              *Proxy
	conn           int
	client, server net.Conn
	closeOnce      sync.Once
	closed         chan struct{}

	mu    sync.Mutex
	queue []*exchange // forwarded, not answered yet, oldest first
	// answering means that the reply to the oldest request is on its way. The client
	// may have it and act on it before this side has noted that.
	answering bool
	over      bool // no more requests are forwarded, no more replies delivered
}

// exchange is a request that waits for its reply.
type exchange struct {
	req Request
	// then, if set, ends the session once the reply has been delivered.
	then *firedRule
	// opaque means that replies from this one on cannot be matched.
	opaque bool
}

// firedRule is a rule that has fired on a request and ends the session.
type firedRule struct {
	rule *Rule
	req  Request
}

func newSession(p *Proxy, conn int, client, server net.Conn) *session {
	return &session{p: p, conn: conn, client: client, server: server, closed: make(chan struct{})}
}

// run returns when both pumps have ended.
func (s *session) run() {
	var pumps sync.WaitGroup
	pumps.Go(s.requests)
	pumps.Go(s.replies)
	pumps.Wait()
	s.mu.Lock()
	abandoned := len(s.queue)
	s.mu.Unlock()
	s.p.count(func(st *Stats) { st.Abandoned += abandoned })
}

func (s *session) close() {
	s.closeOnce.Do(func() {
		close(s.closed)
		_ = s.client.Close() // the connection is gone, whatever the error
		_ = s.server.Close()
	})
}

// requests forwards requests until the client is gone or a rule ends the session. After that it
// reads and discards them, because a client that cannot write would notice more than the fault.
func (s *session) requests() {
	defer s.close()
	r := newRespReader(s.client)
	position, pipelined := 0, false
	for {
		raw, args, err := r.command()
		if err != nil {
			return
		}
		if !pipelined && s.outstanding() == 0 {
			position = 0
		}
		position++
		// The buffered bytes arrived before the client waited for a reply.
		pipelined = r.Buffered() > 0
		req := Request{Conn: s.conn, Position: position, Args: args}
		more, opaque := s.forward(req, raw)
		if opaque {
			_, _ = io.Copy(s.server, r)
			return
		}
		if !more {
			_, _ = io.Copy(io.Discard, r)
			return
		}
	}
}

// forward sends one request to the server, unless a rule forbids it. more is false when
// no further request may be sent.
func (s *session) forward(req Request, raw []byte) (more, opaque bool) {
	e := &exchange{req: req, opaque: unmatched(req)}
	last := false
	if rule := s.p.decide(req, false); rule != nil {
		switch rule.Action {
		case DropRequest:
			s.endAfterQueue(&firedRule{rule, req})
			return false, false
		case CutPipeline:
			e.then, last = &firedRule{rule, req}, true
		case DelayRequest:
			s.delay(rule, req)
		}
	}
	if !s.enqueue(e) {
		return false, false
	}
	s.p.count(func(st *Stats) { st.Requests++ })
	if _, err := s.server.Write(raw); err != nil {
		return false, false // the reply pump sees the same error and closes
	}
	return !last, e.opaque
}

// replies delivers until the server is gone or a rule ends the session.
func (s *session) replies() {
	r := newRespReader(s.server)
	for {
		raw, err := r.value()
		if err != nil {
			s.serverGone()
			return
		}
		e := s.head()
		switch {
		case s.isOver():
			_, _ = io.Copy(io.Discard, r)
			return
		case e != nil && e.opaque:
			s.pop(e)
			s.p.count(func(st *Stats) { st.Replies++ })
			if _, err := s.client.Write(raw); err == nil {
				_, _ = io.Copy(s.client, r)
			}
			s.close()
			return
		case e == nil || raw[0] == '>':
			s.p.count(func(st *Stats) { st.Pushes++ })
			_, _ = s.client.Write(raw) // an error shows in the other pump
		case !s.deliver(e, raw):
			_, _ = io.Copy(io.Discard, r)
			return
		}
	}
}

// deliver sends one reply to the client, as far as the rules allow it. It returns false when the
// session is over.
func (s *session) deliver(e *exchange, raw []byte) bool {
	if rule := s.p.decide(e.req, true); rule != nil {
		switch rule.Action {
		case DropReply:
			s.pop(e)
			s.end(&firedRule{rule, e.req})
			return false
		case TearReply:
			s.pop(e)
			s.tear(&firedRule{rule, e.req}, raw[:min(rule.Bytes, len(raw))])
			return false
		case DelayReply:
			s.delay(rule, e.req)
		}
	}
	s.answer()
	s.p.count(func(st *Stats) { st.Replies++ })
	if _, err := s.client.Write(raw); err != nil {
		s.p.count(func(st *Stats) { st.Replies-- }) // abandoned: the request stays in the queue
		s.close()
		return false
	}
	if then := s.pop(e); then != nil {
		s.end(then)
		return false
	}
	return true
}

// unmatched reports whether a command is answered with no reply or with several.
func unmatched(req Request) bool {
	switch req.Name() {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE",
		"MONITOR", "SYNC", "PSYNC":
		return true
	case "CLIENT":
		return len(req.Args) > 1 && (Request{Args: req.Args[1:]}).Name() == "REPLY"
	}
	return false
}

// delay returns after the rule's time, or when the session is closed.
func (s *session) delay(rule *Rule, req Request) {
	s.p.record(rule)
	rule.notify(req)
	t := time.NewTimer(rule.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closed:
	}
}
