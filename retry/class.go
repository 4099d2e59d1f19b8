package retry

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Class is what a response means for the request that it answers.
type Class uint8

const (
	// DefaultClass is what [TransportConfig].Statuses returns for a status that it does not decide.
	DefaultClass Class = iota
	// Final: return the response.
	Final
	// Again means that another attempt is worth it, if the request may be repeated.
	Again
	// Wait means that a request with the same key is in flight, or that its outcome is being looked
	// up. Ask again for its answer. A wait costs neither an attempt nor a token of the budget. It
	// lasts at most [TransportConfig].MaxWait, and happens under [NoRetry] too.
	Wait
)

// StatusClass is the usual class of a status: Again for 408 Request Timeout, 425 Too Early, 429 Too
// Many Requests and 5xx except 501 Not Implemented and 505 HTTP Version Not Supported; Final for
// all others. A 409 is decided by more than its status; see [TransportConfig].Statuses.
func StatusClass(status int) Class {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return Again
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return Final
	}
	if status >= 500 && status <= 599 {
		return Again
	}
	return Final
}

// idempotent holds the methods of RFC 9110, 9.2.2, whose repetition asks for nothing new.
func idempotent(method string) bool {
	return safe(method) || method == http.MethodPut || method == http.MethodDelete
}

// safe are the methods of RFC 9110, 9.2.1. net/http takes an empty method for GET.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// replayedHeader marks a stored answer. A repeated request would get the same answer.
const replayedHeader = "Idempotent-Replayed"

// class decides about a response. A keyed 409 with the problem in-flight or uncertain comes from a
// layer like httpadapter's.
func (t *Transport) class(resp *http.Response, keyed bool) Class {
	if signalled(resp.Header) || resp.Header.Get(replayedHeader) == "true" {
		return Final
	}
	if t.cfg.Statuses != nil {
		if c := t.cfg.Statuses(resp.StatusCode); c != DefaultClass {
			return c
		}
	}
	if resp.StatusCode != http.StatusConflict || !keyed {
		return StatusClass(resp.StatusCode)
	}
	switch problemType(resp) {
	case "in-flight":
		return Wait
	case "uncertain": // with Retry-After the server finds out the outcome in the meantime
		if _, says := RetryAfter(resp.Header, time.Now()); says {
			return Wait
		}
	}
	return Final
}

// Bounds of reading a problem's text for its type: in bytes, and in time if the attempt has no
// timeout.
const (
	sniffLimit = 64 << 10
	sniffTime  = 10 * time.Second
)

// problemType returns the last part of the type of a problem+json (RFC 9457), and "" for any other
// response. It leaves the body readable from its start.
func problemType(resp *http.Response) string {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "application/problem+json" || resp.Body == nil {
		return ""
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, sniffLimit))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = joined{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
	var problem struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(head, &problem) != nil {
		return ""
	}
	return problem.Type[strings.LastIndexAny(problem.Type, "/#:")+1:]
}

// joined reads from one and closes the other.
type joined struct {
	io.Reader
	io.Closer
}

// failing stands for the rest of a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
