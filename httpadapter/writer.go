package httpadapter

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrResponseTooLarge is the error of a handler's Write that exceeds Config.ResponseLimit. The
// effect of the handler stays; its answer is lost.
var ErrResponseTooLarge = errors.New("httpadapter: response is larger than Config.ResponseLimit")

// errRunEnded is the error of a Write after the handler has returned.
var errRunEnded = errors.New("httpadapter: write after the handler has returned")

// recorder is the ResponseWriter of one run of a handler. It buffers everything, because the first
// byte of an answer is sent after its record is written. It has no Unwrap, ReadFrom, Push or
// Hijack, because with them a handler would reach the writer behind it.
type recorder struct {
	w      http.ResponseWriter
	method string
	limit  int

	mu     sync.Mutex // goroutines of a handler may write after it has returned
	header http.Header
	sent   http.Header // header as it was when the status was written
	status int         // 0: nothing was written
	body   []byte
	over   bool // more was written than the limit
	closed bool
}

func newRecorder(w http.ResponseWriter, method string, limit int) *recorder {
	return &recorder{w: w, method: method, limit: limit, header: w.Header().Clone()}
}

// Header implements [http.ResponseWriter]: it begins as outer middleware has left it.
func (r *recorder) Header() http.Header {
	if r.header == nil { // w had none
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader implements [http.ResponseWriter]: only the first call counts. Each 1xx except 101 is
// sent at once.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("httpadapter: invalid status %d", status)) // as net/http does
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		r.inform(status)
		return
	}
	r.begin(status)
}

func (r *recorder) begin(status int) {
	r.status, r.sent = status, r.Header().Clone()
}

// inform sends a 1xx with the headers as they are now, and then restores the headers of the real
// writer.
func (r *recorder) inform(status int) {
	h := r.w.Header()
	before := maps.Clone(h)
	clear(h)
	maps.Copy(h, r.header)
	r.w.WriteHeader(status)
	clear(h)
	maps.Copy(h, before)
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(p []byte) (int, error) { return write(r, p) }

// WriteString implements [io.StringWriter].
func (r *recorder) WriteString(s string) (int, error) { return write(r, s) }

func write[T []byte | string](r *recorder, p T) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errRunEnded
	}
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	switch {
	case !bodyAllowed(r.status):
		return 0, http.ErrBodyNotAllowed
	case r.declared() >= 0 && int64(len(r.body)+len(p)) > r.declared():
		return 0, http.ErrContentLength
	case r.over || len(p) > r.limit-len(r.body):
		r.over, r.body = true, nil
		return 0, ErrResponseTooLarge
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// Flush implements [http.Flusher]. It fixes the status and the headers that net/http would
// send now, and sends nothing.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (r *recorder) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 && !r.closed {
		r.begin(http.StatusOK)
	}
	return nil
}

// SetReadDeadline is for [http.ResponseController].
func (r *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetReadDeadline(t)
}

// SetWriteDeadline is for [http.ResponseController].
func (r *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetWriteDeadline(t)
}

// close ends the run. Every later write returns an error.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// wrote reports whether the handler has begun an answer.
func (r *recorder) wrote() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status != 0
}

// finish completes the answer of a handler that has returned, as net/http would: it sets a missing
// status to 200, and detects a missing content type from the body.
func (r *recorder) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	_, typed := r.sent["Content-Type"]
	if !typed && len(r.body) > 0 && r.sent.Get("Content-Encoding") == "" {
		r.sent["Content-Type"] = []string{http.DetectContentType(r.body)}
	}
}

// declared returns the Content-Length that the handler has announced, or -1 if there is none.
func (r *recorder) declared() int64 {
	if values := r.sent["Content-Length"]; len(values) == 1 {
		if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// incomplete reports whether the handler wrote less than it had announced. net/http would then
// break off the connection, and the client would know.
func (r *recorder) incomplete() bool {
	return !r.over && r.method != http.MethodHead && bodyAllowed(r.status) &&
		r.declared() > int64(len(r.body))
}

// send writes the answer to the real writer. The function tell adds headers to it.
func (r *recorder) send(tell func()) {
	replace(r.w, r.sent)
	tell()
	if bodyAllowed(r.status) && r.method != http.MethodHead {
		r.w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	}
	r.w.WriteHeader(r.status)
	_, _ = r.w.Write(r.body) // the client may have gone; its retry gets the replay
}

// bodyAllowed is RFC 9110, 6.4.1.
func bodyAllowed(status int) bool {
	return status >= 200 &&
		!slices.Contains([]int{http.StatusNoContent, http.StatusNotModified}, status)
}
