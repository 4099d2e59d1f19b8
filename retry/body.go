package retry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
)

// outgoing is the body of a request: the first reader, and a function that makes further readers.
type outgoing struct {
	first io.ReadCloser // nil once it has been handed out
	again func() (io.ReadCloser, error)
	none  bool // there is no body
}

// newOutgoing looks at req's body. If keep is set, a body without GetBody is read up to limit
// bytes; a longer one stays as it is.
func newOutgoing(req *http.Request, keep bool, limit int64) (*outgoing, error) {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return &outgoing{none: true}, nil
	case req.GetBody != nil:
		return &outgoing{first: req.Body, again: req.GetBody}, nil
	case !keep || limit < 0 || req.ContentLength > limit:
		return &outgoing{first: req.Body}, nil
	}
	limit = min(limit, math.MaxInt64-1)
	head, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if err != nil {
		return &outgoing{first: req.Body}, fmt.Errorf("retry: body of the request: %w", err)
	}
	if int64(len(head)) > limit {
		return &outgoing{first: joined{io.MultiReader(bytes.NewReader(head), req.Body), req.Body}},
			nil
	}
	_ = req.Body.Close() // it has been read to its end
	return &outgoing{again: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(head)), nil
	}}, nil
}

// repeatable reports whether the body can be sent more than once.
func (o *outgoing) repeatable() bool { return o.none || o.again != nil }

var errBodyGone = errors.New("retry: body of the request: it can be read once only")

// open returns a body to send.
func (o *outgoing) open(orig io.ReadCloser) (io.ReadCloser, error) {
	if o.none {
		return orig, nil
	}
	if first := o.first; first != nil {
		o.first = nil
		return first, nil
	}
	if o.again == nil {
		return nil, errBodyGone
	}
	body, err := o.again()
	if err != nil {
		return nil, fmt.Errorf("retry: body of the request: %w", err)
	}
	return body, nil
}

// close closes a body that has not been handed out.
func (o *outgoing) close() {
	if o.first != nil {
		_ = o.first.Close()
		o.first = nil
	}
}

// held is a response's body. Its request counts as under way until the body is closed.
type held struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (h held) Close() error {
	defer h.release()
	return h.ReadCloser.Close()
}

// heldConn is a held body that can also be written to, as the body of 101 Switching Protocols can.
type heldConn struct {
	held
	io.Writer
}

// hold makes sure that release is called when resp's body is closed, or now if resp has no body.
func hold(resp *http.Response, release func()) {
	if resp.Body == nil || resp.Body == http.NoBody {
		release()
		return
	}
	h := held{resp.Body, release}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = heldConn{h, w}
		return
	}
	resp.Body = h
}
