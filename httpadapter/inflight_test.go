package httpadapter_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/httpadapter"
)

// S-7: an account that sends new keys without end holds MaxInFlight claims, and the others go on.
func TestS07OneAccountCannotHoldAllClaims(t *testing.T) {
	const most = 3
	running, release := make(chan struct{}), make(chan struct{})
	s := newService(t, httpadapter.Config{MaxInFlight: most},
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Account") == "acme" {
				running <- struct{}{}
				<-release
			}
			_, _ = w.Write([]byte("paid"))
		})
	answers := make(chan *httptest.ResponseRecorder, most)
	for i := range most {
		go func() { answers <- s.post(fmt.Sprint("held-", i), "") }()
		<-running
	}
	for i := range 100 {
		unread := func(r *http.Request) {
			r.Body = readCloser{iotest.ErrReader(errors.New("was read"))}
		}
		wantProblem(t, s.post(fmt.Sprint("more-", i), "{}", unread), 429, "too-many-in-flight",
			retryInOne)
	}
	s.wantRuns(t, most)
	wantAnswer(t, s.post("k", "", header("X-Account", "other")), 200, "paid", firstTime)
	close(release)
	for range most {
		wantAnswer(t, <-answers, 200, "paid", firstTime)
	}
	go func() { <-running }()
	// the refused requests claimed nothing
	wantAnswer(t, s.post("more-0", ""), 200, "paid", firstTime)
}

// However a request ends, its place is free again. Otherwise a failing handler would lock an
// account out.
func TestS07PlacesComeBack(t *testing.T) {
	s := newService(t, httpadapter.Config{MaxInFlight: 1, RequestLimit: 10},
		func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-End") {
			case "panic":
				panic("bad")
			case "none":
				w.WriteHeader(http.StatusInternalServerError)
			default:
				w.WriteHeader(http.StatusCreated)
			}
		})
	for range 3 {
		func() {
			defer func() {
				assert.NotNil(t, recover(), "the panic did not go on")
			}()
			s.post("k", "", header("X-End", "panic"))
		}()
		wantAnswer(t, s.post("k", "", header("X-End", "none")), 500, "", nil)
		wantProblem(t, s.post("k", "larger than the limit"), 413, "request-too-large", firstTime)
	}
	wantAnswer(t, s.post("k", ""), 201, "", firstTime)
	wantAnswer(t, s.post("k", ""), 201, "", replayed)
}

// A middleware inside of itself does not count a request twice.
func TestS07InsideOfItself(t *testing.T) {
	s := newService(t, httpadapter.Config{MaxInFlight: 1}, created())
	s.h = s.m.Handler(s.h)
	wantAnswer(t, s.post("k", ""), 201, "paid", firstTime)
}
