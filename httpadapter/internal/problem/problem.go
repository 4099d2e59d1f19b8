// Package problem writes the answers that adapters give in their own name: problem details
// (RFC 9457), with what a client may do next.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Base comes before the name of a problem in its type. The page at Base says what each problem
// means.
const Base = "https://github.com/onceward/onceward/blob/main/docs/reference/http.md#"

// Problem is one answer.
type Problem struct {
	// Name is the end of its type, and an anchor of the page at Base.
	Name string
	// Title is one sentence, the same for all problems of the name.
	Title string
	// Status of the answer.
	Status int
	// Detail says what was wrong with this request. Default none.
	Detail string
	// Instance is a URI that names what this request is about. Default none.
	Instance string
	// RetryAfter is how long a client should wait before it sends the request again. It is
	// rounded up to whole seconds. Default 0: the answer names no time.
	RetryAfter time.Duration
	// Final means that every retry will get the same answer, so the header Do-Not-Retry is sent.
	Final bool
}

// body has the members of problem details, with their names from RFC 9457.
type body struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// described lists headers that describe a body. They would be wrong for the body that is sent.
var described = []string{"Content-Length", "Content-Encoding", "Content-Language",
	"Content-Disposition", "Etag", "Last-Modified"}

// Write answers with p, as problem details. Headers that are already set are sent, too, except
// headers that describe another body.
func (p Problem) Write(w http.ResponseWriter) {
	data, err := json.Marshal(body{Type: Base + p.Name, Title: p.Title, Status: p.Status,
		Detail: p.Detail, Instance: p.Instance})
	if err != nil {
		panic(err) // text and a number: JSON has both
	}
	p.WriteBody(w, "application/problem+json", append(data, '\n'))
}

// WriteBody does what Write does, with another body.
func (p Problem) WriteBody(w http.ResponseWriter, contentType string, data []byte) {
	h := w.Header()
	for _, name := range described {
		h.Del(name)
	}
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", Seconds(p.RetryAfter))
	}
	if p.Final {
		h.Set("Do-Not-Retry", "1")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(data) // the client may have gone
}

// Seconds returns d in whole seconds, rounded up.
func Seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
