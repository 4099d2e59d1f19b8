package webhook

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/onceward/onceward/httpadapter/internal/problem"
)

// firstRead is how much memory a body gets before its first byte has arrived.
const firstRead = 4 << 10

var errUnverifiedFull = errors.New("webhook: too many bytes of unverified bodies at a time")

// unverified counts the bytes that unverified bodies take in memory.
type unverified struct {
	used  atomic.Int64
	limit int64
}

// take takes n bytes, or none.
func (u *unverified) take(n int64) bool {
	if u.used.Add(n) <= u.limit {
		return true
	}
	u.used.Add(-n)
	return false
}

// body is a body in memory. Its capacity counts toward the limit until give.
type body struct {
	room  *unverified
	bytes []byte
}

// give takes the body out of the count: it is verified, or it is refused and dropped.
func (b *body) give() {
	b.room.used.Add(-int64(cap(b.bytes)))
	b.room = nil
}

// grow makes room for at least one more byte, up to a capacity of most.
func (b *body) grow(most int64) error {
	size := min(max(2*int64(cap(b.bytes)), firstRead), most)
	if !b.room.take(size - int64(cap(b.bytes))) {
		return errUnverifiedFull
	}
	larger := make([]byte, len(b.bytes), size)
	copy(larger, b.bytes)
	b.bytes = larger
	return nil
}

// readFrom reads a body of at most limit bytes. Its memory grows with the bytes that arrive: an
// announced length alone takes none.
func (b *body) readFrom(r io.Reader, limit int64) error {
	for {
		if len(b.bytes) == cap(b.bytes) {
			// with one byte more, the reader can report the end
			if err := b.grow(limit + 1); err != nil {
				return err
			}
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readBody reads the whole body, or returns what is wrong with it. Unlike readBody of httpadapter
// it does not look for a form that was parsed outside: such a body fails at the signature. The
// caller must call give on the body.
func (rc *Receiver) readBody(w http.ResponseWriter, r *http.Request) (*body, *problem.Problem) {
	limit := int64(rc.provider.BodyLimit)
	if r.ContentLength > limit {
		return nil, &requestTooLarge
	}
	b := &body{room: &rc.unverified}
	if r.Body == nil {
		return b, nil
	}
	err := b.readFrom(http.MaxBytesReader(w, r.Body, limit), limit)
	var tooLarge *http.MaxBytesError
	var wrong *problem.Problem
	switch {
	case errors.As(err, &tooLarge):
		wrong = &requestTooLarge
	case errors.Is(err, errUnverifiedFull):
		busy := tooManyUnverified
		busy.RetryAfter = rc.cfg.RetryAfter
		wrong = &busy
	case err != nil:
		wrong = &bodyIncomplete
	case len(b.bytes) == 0 && r.ContentLength > 0:
		wrong = &bodyTaken
	}
	if wrong != nil {
		b.give()
		return nil, wrong
	}
	return b, nil
}
