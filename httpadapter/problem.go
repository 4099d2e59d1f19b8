package httpadapter

import (
	"net/http"
	"time"

	"github.com/onceward/onceward/httpadapter/internal/problem"
)

// Problem is an answer that the middleware gives in its own name, instead of the handler's.
// docs/reference/http.md lists them.
type Problem struct {
	// Name is one of the names on that page, such as "in-flight".
	Name string
	// Title is one sentence, the same for every problem of the name.
	Title string
	// Status of the answer, 400-599.
	Status int
	// Detail says what was wrong with this request. Often empty.
	Detail string
	// Instance is "urn:onceward:" and the ID of the request's record; empty if the request cannot
	// have a record.
	Instance string
	// RetryAfter is after how long the client may try again. 0 means that the answer does not say.
	// It is sent as Retry-After.
	RetryAfter time.Duration
	// Final means that every retry will get the same answer. It is sent as Do-Not-Retry.
	Final bool
}

// writeProblem answers with p, in the form of Config.ProblemBody.
func (m *Middleware) writeProblem(w http.ResponseWriter, r *http.Request, p problem.Problem) {
	if m.cfg.ProblemBody == nil {
		p.Write(w)
		return
	}
	contentType, body := m.cfg.ProblemBody(r, Problem(p))
	if contentType == "" {
		p.Write(w)
		return
	}
	p.WriteBody(w, contentType, body)
}
