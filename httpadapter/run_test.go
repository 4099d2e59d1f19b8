package httpadapter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// twice is a Runner that runs the effect a second time, as one over SQL does after a deadlock.
func twice(t *testing.T) *fake {
	return &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		_, _, err := effect(ctx)
		assert.NoError(t, err)
		value, _, err := effect(ctx)
		return dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: value}, err
	}}
}

// Every run gets the original request, and nothing of an earlier run is sent.
func TestHandlerThatIsRunAgain(t *testing.T) {
	var first http.ResponseWriter
	runs := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		assert.Equal(t, "1", r.FormValue("amount"), "run %d: amount", runs)
		assert.EqualValues(t, 8, r.ContentLength, "run %d", runs)
		assert.Empty(t, r.TransferEncoding, "run %d", runs)
		assert.Empty(t, r.Header.Get("X-Seen"), "run %d", runs)
		assert.Equal(t, "7", r.PathValue("id"), "run %d", runs)
		r.Header.Set("X-Seen", "1")
		r.Form.Set("amount", "2")
		if runs == 1 {
			first = w
			w.Header().Set("X-First", "1")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("first"))
			return
		}
		n, err := first.Write([]byte("late"))
		assert.Equal(t, 0, n)
		assert.Error(t, err)
		first.WriteHeader(http.StatusOK)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("second"))
	})
	run := twice(t)
	do := run.do
	run.do = func(ctx context.Context, key string, effect httpadapter.Effect,
		req dedup.Request) (dedup.Result[[]byte], error) {
		return do(ctx, key, func(ctx context.Context) ([]byte, bool, error) {
			value, undo, err := effect(ctx)
			if runs == 1 {
				return value, undo, nil // its 500 is not kept, but it runs again
			}
			return value, undo, err
		}, req)
	}
	m := newMiddleware(t, run, byHeader, httpadapter.Config{})
	r := post("k", "amount=1", header("Content-Type", "application/x-www-form-urlencoded"),
		func(r *http.Request) {
			r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
			r.SetPathValue("id", "7")
		})
	w := send(m.Handler(h), r)
	wantAnswer(t, w, 201, "second", map[string]string{"X-First": ""})
	assert.Equal(t, 2, runs)
}

func TestWriterAfterTheHandlerHasReturned(t *testing.T) {
	var kept http.ResponseWriter
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
		kept = w
		created()(w, r)
	})
	wantAnswer(t, s.post("k", ""), 201, "paid", firstTime)
	n, err := kept.Write([]byte("late"))
	assert.Equal(t, 0, n)
	assert.Error(t, err)
	n, err = io.WriteString(kept, "late")
	assert.Equal(t, 0, n)
	assert.Error(t, err)
	kept.WriteHeader(http.StatusEarlyHints)
	wantAnswer(t, s.post("k", ""), 201, "paid", replayed)
}

// A handler may leave a goroutine behind. That goroutine must not reach the connection.
func TestHintAfterTheHandlerHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept http.ResponseWriter
		s := newService(t, httpadapter.Config{Timeout: time.Second},
			func(w http.ResponseWriter, r *http.Request) {
				kept = w
				<-r.Context().Done()
			})
		w := &plain{header: http.Header{}}
		s.h.ServeHTTP(w, post("k", ""))
		kept.WriteHeader(http.StatusEarlyHints)
		assert.Equal(t, []int{503}, w.statuses)
	})
}

// If an outer handler has parsed the form, the handler parses its own body again.
func TestFormParsedOutside(t *testing.T) {
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "1", r.FormValue("a"))
		assert.Equal(t, "2", r.PostFormValue("b"))
		w.WriteHeader(http.StatusOK)
	})
	form := header("Content-Type", "application/x-www-form-urlencoded")
	wantAnswer(t, s.post("k", "a=1&b=2", form, func(r *http.Request) {
		r.Form, r.PostForm = url.Values{"a": {"9"}}, url.Values{"b": {"9"}}
	}), 200, "", firstTime)
}

// The Runner is asked to undo the effect of a failure, and to keep the failure's record.
func TestFailuresAskForUndo(t *testing.T) {
	for code, want := range map[int]bool{200: false, 302: false, 400: true, 402: true, 422: true} {
		run := &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
			_ dedup.Request) (dedup.Result[[]byte], error) {
			value, undo, err := effect(ctx)
			assert.Equal(t, want, undo, "status %d", code)
			assert.NoError(t, err, "status %d", code)
			return dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: value}, nil
		}}
		m := newMiddleware(t, run, byHeader, httpadapter.Config{})
		wantAnswer(t, send(m.Handler(status(code)), post("k", "")), code, "", nil)
	}
}

func TestAnswerThatIsTooLarge(t *testing.T) {
	cfg := httpadapter.Config{ResponseLimit: 1000}
	t.Run("Write says so", func(t *testing.T) {
		s := newService(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/a")
			n, err := w.Write(make([]byte, 1000))
			assert.Equal(t, 1000, n)
			assert.NoError(t, err)
			for range 2 {
				n, err := w.Write([]byte{1})
				assert.Equal(t, 0, n)
				assert.ErrorIs(t, err, httpadapter.ErrResponseTooLarge)
			}
		})
		wantProblem(t, s.post("k", ""), 500, "response-too-large", final)
		wantProblem(t, s.post("k", ""), 410, "response-not-kept", finalAgain)
		s.wantRuns(t, 1)
	})
	t.Run("with its headers", func(t *testing.T) {
		s := newService(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", strings.Repeat("a", 600))
			_, _ = w.Write(make([]byte, 600))
		})
		wantProblem(t, s.post("k", ""), 500, "response-too-large", final)
		wantProblem(t, s.post("k", ""), 410, "response-not-kept", finalAgain)
		s.wantRuns(t, 1)
	})
	t.Run("not kept", func(t *testing.T) {
		s := newService(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(make([]byte, 1001))
		})
		wantProblem(t, s.post("k", ""), 404, "response-too-large",
			map[string]string{"Idempotency-Window": "86400"})
		s.post("k", "")
		s.wantRuns(t, 2)
	})
}

// A handler that writes less than its Content-Length has broken off, and net/http would show that
// to the client. The effect has happened, but a part of an answer is not replayed as a whole one.
func TestAnswerThatBreaksOff(t *testing.T) {
	half := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(code)
			_, _ = w.Write([]byte("half"))
			_, err := w.Write(make([]byte, 7))
			assert.ErrorIs(t, err, http.ErrContentLength, "more than announced")
		}
	}
	s := newService(t, httpadapter.Config{}, half(200))
	wantProblem(t, s.post("k", ""), 500, "response-incomplete", final)
	wantProblem(t, s.post("k", ""), 410, "response-not-kept", finalAgain)
	s.wantRuns(t, 1)

	s = newService(t, httpadapter.Config{}, half(404))
	wantProblem(t, s.post("k", ""), 404, "response-incomplete", nil)
	s.post("k", "")
	s.wantRuns(t, 2)
}

// The handler gets the bytes that were sent, and every replay has the bytes of the first answer.
func TestBodiesAreReplayedByteForByte(t *testing.T) {
	body := make([]byte, 256)
	for i := range body {
		body[i] = byte(i)
	}
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
		in, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, body, in)
		for _, b := range body {
			_, _ = w.Write([]byte{b})
		}
	})
	first := s.post("k", string(body))
	for range 3 {
		again := s.post("k", string(body))
		wantAnswer(t, again, 200, string(body), replayed)
		got, want := again.Header()["Content-Type"], first.Header()["Content-Type"]
		require.Len(t, want, 1)
		assert.Equal(t, want[0], got[0])
	}
	s.wantRuns(t, 1)
}

// A handler can set the connection's deadlines, but does not get the connection.
func TestDeadlinesAreForwarded(t *testing.T) {
	at := time.Now()
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		assert.NoError(t, errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at.Add(1))))
	})
	w := &timed{ResponseWriter: &plain{header: http.Header{}}}
	s.h.ServeHTTP(w, post("k", ""))
	assert.True(t, w.read.Equal(at) && w.write.Equal(at.Add(1)), "read %v, write %v", w.read,
		w.write)
}

type timed struct {
	http.ResponseWriter
	read, write time.Time
}

func (w *timed) SetReadDeadline(t time.Time) error  { w.read = t; return nil }
func (w *timed) SetWriteDeadline(t time.Time) error { w.write = t; return nil }

// The log has the causes that the client does not see, but no key and no principal.
func TestLog(t *testing.T) {
	down := errors.New("directory is down")
	none := dedup.Result[[]byte]{}
	for _, row := range []struct {
		name, want string
		run        httpadapter.Runner
		cfg        httpadapter.Config
		scope      httpadapter.Scope
	}{
		{"store", "directory is down", answering(none, down), httpadapter.Config{}, byHeader},
		{"scope", "directory is down", answering(none, nil), httpadapter.Config{},
			func(*http.Request) (string, error) { return "", down }},
		{"lease", "lease lost", ending(dedup.ErrLeaseLost), httpadapter.Config{}, byHeader},
		{"record", "unknown version",
			answering(dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: []byte("{}")}, nil),
			httpadapter.Config{}, byHeader},
		{"replay", "directory is down",
			answering(dedup.Result[[]byte]{Outcome: dedup.Duplicate}, nil),
			httpadapter.Config{BeforeReplay: func(*http.Request) error { return down }}, byHeader},
		{"forgo", "Forgo", ending(nil), httpadapter.Config{}, byHeader},
	} {
		t.Run(row.name, func(t *testing.T) {
			var log bytes.Buffer
			row.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			h := newMiddleware(t, row.run, row.scope,
				row.cfg).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				httpadapter.Forgo(r.Context())
				w.WriteHeader(http.StatusOK)
			}))
			send(h, post("secret-key", "secret-body"))
			got := log.String()
			assert.Contains(t, got, row.want)
			assert.NotContains(t, got, "secret")
			assert.NotContains(t, got, "acme")
		})
	}
}

// With CancelWithClient the handler also has the deadline of an outer handler.
func TestCancelWithClientHasItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for set, want := range map[time.Duration]time.Duration{time.Second: time.Second,
			time.Hour: time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), set)
			defer cancel()
			s := newService(t, httpadapter.Config{CancelWithClient: true},
				func(w http.ResponseWriter, r *http.Request) {
					deadline, ok := r.Context().Deadline()
					assert.True(t, ok)
					assert.Equal(t, want, time.Until(deadline))
				})
			s.post("k", "", with(ctx))
		}
	})
}

// The log has a warning when a key is freed because its handler had said nothing by the end of
// Timeout: the retry does again what the handler has done. There is no warning when the handler
// was canceled because its client left, which CancelWithClient asks for.
func TestSilenceIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		cfg := httpadapter.Config{Timeout: 3 * time.Second, CancelWithClient: true,
			Logger: slog.New(slog.NewTextHandler(&log, nil))}
		s := newService(t, cfg, silent)
		ctx, hangUp := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, hangUp)
		wantProblem(t, s.post("secret", "", with(ctx)), 503, "cancelled", retryInOne)
		assert.Zero(t, log.Len(), "logged that the client has gone")
		wantProblem(t, s.post("secret", ""), 503, "cancelled", retryInOne)
		got := log.String()
		assert.Contains(t, got, "level=WARN")
		assert.Contains(t, got, "timeout=3s")
		assert.NotContains(t, got, "secret")
		log.Reset()
		cfg.Timeout = time.Second
		newService(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
		}).post("secret", "")
		assert.Zero(t, log.Len(), "logged an answer")
	})
}

// ending runs the effect and then returns err.
func ending(err error) *fake {
	return &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		_, _, _ = effect(ctx)
		return dedup.Result[[]byte]{Outcome: dedup.Acquired}, err
	}}
}
