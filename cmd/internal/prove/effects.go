package prove

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// effects holds what the program has done, by message id.
type effects struct {
	mu   sync.Mutex
	at   map[string][]time.Time
	last time.Time
	// foreign counts calls with an id that was not sent.
	foreign int
	known   map[string]bool
}

func newEffects(ids []string) *effects {
	e := &effects{at: map[string][]time.Time{}, known: map[string]bool{}, last: time.Now()}
	for _, id := range ids {
		e.known[id] = true
	}
	return e
}

// serve accepts calls of the program on an address of this machine, until stop is called.
func (e *effects) serve(ctx context.Context) (url string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) }) // until Close
	return "http://" + l.Addr().String() + "/effects", func() {
		_ = server.Close()
		running.Wait()
	}, nil
}

// ServeHTTP records an effect.
func (e *effects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if r.Method != http.MethodPost || id == "" {
		http.Error(w, "an effect is a POST to $EFFECTS_URL?id=ID", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = time.Now()
	e.note(id)
	w.WriteHeader(http.StatusNoContent)
}

// note records an effect at the time last. It requires the lock.
func (e *effects) note(id string) {
	if !e.known[id] {
		e.foreign++
		return
	}
	e.at[id] = append(e.at[id], e.last)
}

// state returns how many messages have an effect, and when the last effect came.
func (e *effects) state() (messages int, last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.at), e.last
}

// countable checks the command of --count while there is no effect. It returns only errors that no
// effect ends, because the first effect may make the file or the table that the command reads.
func (e *effects) countable(ctx context.Context, command string) error {
	if _, err := shell(ctx, "-n", "-c", command); err != nil { // -n only parses
		return err
	}
	const cannotRun, notFound = 126, 127
	err := e.counted(ctx, command)
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() == cannotRun || exit.ExitCode() == notFound) {
		return err
	}
	return context.Cause(ctx)
}

// counted replaces the recorded effects by the output of a command.
func (e *effects) counted(ctx context.Context, command string) error {
	out, err := shell(ctx, "-c", command)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.at
	e.at, e.foreign = map[string][]time.Time{}, 0
	for line := range strings.Lines(out) {
		if id := strings.TrimSpace(line); id != "" {
			e.note(id)
		}
	}
	for id := range e.at {
		if len(e.at[id]) != len(before[id]) {
			e.last = time.Now()
			break
		}
	}
	return nil
}

// shell runs a command of --count and returns its output.
func shell(ctx context.Context, args ...string) (string, error) {
	var out, failed bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", args...) //nolint:gosec // it is the user's
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("--count: %w: %.300s", err, strings.TrimSpace(failed.String()))
	}
	return out.String(), nil
}
