package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// job is what a server process is to do.
type job struct {
	settings
	Resolve bool // it asks the ledger about keys that are uncertain
}

const childEnv = "ONCEWARD_HTTP_CHILD"

// Values of the header X-Play: a request asks its handler to stop at a place and to say so.
const (
	beforeEffect = "before the effect"
	afterEffect  = "after the effect"
	afterDanger  = "after the effect, which was declared"
	beforeRecord = "before the record" // when the handler has returned
	untilTold    = "before the effect, until the others have their answers"
)

// worker is a server process.
type worker struct {
	fixture *fixture
	m       *httpadapter.Middleware
	told    chan struct{}
	say     sync.Mutex
	runs    atomic.Int64
}

// work serves until commands end.
func work(text string, commands io.Reader) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	w := &worker{told: make(chan struct{})}
	resolve := w.resolve
	if !j.Resolve {
		resolve = nil
	}
	var err error
	if w.fixture, err = j.open(context.Background(), resolve); err != nil {
		return err
	}
	defer w.fixture.shut()
	if w.m, err = httpadapter.New(stopping{w.fixture.run, w}, account,
		httpadapter.Config{}); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: flushing(w.m.Handler(w))} // of a test
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	w.tell("ready " + l.Addr().String())
	if _, err := bufio.NewReader(commands).ReadString('\n'); err == nil {
		close(w.told)
		_, _ = io.Copy(io.Discard, commands)
	}
	err = server.Close()
	<-ended
	return err
}

func (w *worker) tell(line string) {
	w.say.Lock()
	defer w.say.Unlock()
	fmt.Println(line)
}

// stop says where the request is, and stays there; play is of the request.
func (w *worker) stop(play, here string) {
	switch play {
	case here:
		w.tell("holding")
		select {} // the parent's SIGKILL ends it
	case untilTold:
		if here == beforeEffect {
			w.tell("holding")
			<-w.told
		}
	}
}

// ServeHTTP books the request's key. Its answers differ from run to run.
func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	play, effect := r.Header.Get("X-Play"), r.Header.Get("Idempotency-Key")
	w.stop(play, beforeEffect)
	if play == afterDanger {
		if err := dedup.MarkIrreversible(r.Context()); err != nil {
			panic(err)
		}
	}
	if err := w.fixture.ledger.book(r.Context(), effect); err != nil {
		panic(err)
	}
	w.stop(play, afterEffect)
	w.stop(play, afterDanger)
	rw.Header().Set("Location", "/orders/"+effect)
	rw.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(rw, "%s, by process %d, run %d\x00", effect, os.Getpid(), w.runs.Add(1))
}

// resolve looks into the ledger, as a real one would ask the payee.
func (w *worker) resolve(ctx context.Context, key string, _ dedup.Record) (dedup.Resolution,
	error) {
	booked, err := w.fixture.ledger.counts(ctx)
	switch {
	case err != nil:
		return dedup.Resolution{}, err
	case booked[key] == 0:
		return dedup.DidNotHappen(), nil
	}
	result, err := w.m.EncodeResponse(ctx, http.StatusCreated,
		http.Header{"Location": {"/orders/" + key}}, []byte("found in the ledger"))
	return dedup.Happened(result), err
}

// stopping is a Runner that stops between an effect and its record.
type stopping struct {
	httpadapter.Runner
	w *worker
}

type playKey struct{}

func (s stopping) Run(ctx context.Context, key string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	return s.Runner.Run(ctx, key, func(ctx context.Context) ([]byte, bool, error) {
		result, undo, err := effect(ctx)
		play, _ := ctx.Value(playKey{}).(string)
		s.w.stop(play, beforeRecord)
		return result, undo, err
	}, opts...)
}

// flushing sends every byte as soon as the middleware writes it.
func flushing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), playKey{}, r.Header.Get("X-Play"))
		next.ServeHTTP(&flusher{w}, r.WithContext(ctx))
	})
}

type flusher struct{ http.ResponseWriter }

func (f *flusher) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.ResponseWriter).Flush())
}
