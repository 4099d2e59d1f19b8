package httpadapter

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/internal/problem"
)

var noAnswer = problem.Problem{Name: "no-answer", Status: 500,
	Title: "The request's handler answered nothing."}

// errSilent is the error of a handler that has returned and written nothing.
var errSilent = errors.New("httpadapter: the handler wrote nothing; its effect may have happened")

// silencePause is the pause between two tries to record that a silent handler may have had its
// effect. MarkIrreversible itself has tried several times by then.
const silencePause = 100 * time.Millisecond

// silentRoutes bounds how many routes are remembered as logged.
const silentRoutes = 1000

// silent reports whether the handler has returned without an answer, and Config.EmptyAnswer does
// not say that this silence is an answer. The request r is as the handler has left it; a router
// inside may have set its pattern. net/http sends a 200 for silence. But some adapters of
// frameworks run the route after the middleware has returned, or write the route's error outside of
// the middleware. In both cases a failure would be recorded as that 200.
func (c *call) silent(r *http.Request) bool {
	return !c.last.wrote() && (c.m.cfg.EmptyAnswer == nil || !c.m.cfg.EmptyAnswer(r))
}

// keepSilence makes sure that a silent handler does not have its effect twice. An Atomic Runner
// undoes what the handler has done, and any other Runner must keep the key as uncertain.
func (c *call) keepSilence(ctx context.Context, r *http.Request, forgo bool) error {
	c.last.close()
	c.m.silences.log(c.m.cfg.Logger.Error, r)
	c.undone = c.m.atomic || forgo
	switch {
	case forgo: // nothing has begun, says the handler
		return dedup.NotStarted(errSilent)
	case c.m.atomic:
		return errSilent
	}
	return errors.Join(errSilent, declareDoubt(ctx))
}

// declareDoubt records that the attempt under ctx may have had its effect, so that its end without
// a result leaves the key uncertain. If MarkIrreversible failed and the release after it succeeded,
// the key would be free, and the request would run a second time. So declareDoubt tries for as long
// as the claim is ours. When the claim is lost, there is nothing to release.
func declareDoubt(ctx context.Context) error {
	for {
		err := dedup.MarkIrreversible(ctx)
		var input *dedup.InputError
		if err == nil || errors.Is(err, dedup.ErrLeaseLost) || errors.As(err, &input) {
			return err
		}
		pause := time.NewTimer(silencePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}

// answerSilence answers the request of a silent handler. The client must keep its key, because with
// a new key an effect that has happened would happen again.
func (c *call) answerSilence() {
	p := noAnswer
	p.Detail = "The handler wrote nothing. Its effect was undone, or had not begun."
	if !c.undone {
		p.Detail = "The handler wrote nothing; its effect may have happened. Keep the " +
			KeyHeader + "."
		p.RetryAfter = uncertainRetryAfter
	}
	c.write(p)
}

// silences holds the routes whose first silence has been logged.
type silences struct {
	mu     sync.Mutex
	routes map[string]bool
}

func (s *silences) log(log func(msg string, args ...any), r *http.Request) {
	route := r.Pattern
	if route == "" {
		route = r.Method + " " + r.URL.Path
	}
	s.mu.Lock()
	first := !s.routes[route]
	if s.routes == nil || len(s.routes) >= silentRoutes {
		s.routes = map[string]bool{} // paths without end are logged again rather than remembered
	}
	s.routes[route] = true
	s.mu.Unlock()
	if first {
		log("httpadapter: a handler returned without an answer: it called neither WriteHeader nor Write nor Flush, and "+
			"its request is answered with 500. Answer 204 where an empty answer is meant, or set Config.EmptyAnswer. "+
			"A framework's adapter that runs the route after the middleware looks the same: see docs/guides/frameworks.md",
			"route", route)
	}
}
