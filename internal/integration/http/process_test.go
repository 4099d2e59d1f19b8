package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is a server process, seen from the test.
type process struct {
	*testing.T
	addr  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // that it prints; closed when it has ended
}

func start(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	// It ends when its standard input does, also where this process is killed.
	p := &process{T: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]),
		lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.lines <- scan.Text()
		}
	}()
	t.Cleanup(p.end)
	ready, _ := strings.CutPrefix(p.line(), "ready ")
	p.addr = ready
	return p
}

// end waits until the process has ended by itself, if it has not been killed.
func (p *process) end() {
	_ = p.stdin.Close()
	for range p.lines { // until it prints no more
	}
	if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState.Exited() {
		p.Errorf("a server process: %v", err)
	}
}

// line returns the next line that it prints.
func (p *process) line() string {
	p.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.Fatal("the process has ended")
		}
		return line
	case <-time.After(time.Minute):
		p.Fatal("the process says nothing")
		return ""
	}
}

func (p *process) kill() {
	p.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	for range p.lines { // until it has ended
	}
}

func playing(name, play string) request {
	return order("Idempotency-Key: "+name, "X-Play: "+play)
}

// result is the answer or the error of a request.
type result struct {
	answer
	err error
}

// TestCrowd: 200 equal requests come at a time, half of them to each of two processes that share a
// store. They have one effect. Every answer is the stored one, to the byte, or says that the
// request is in flight.
func TestCrowd(t *testing.T) {
	const crowd = 200
	over := slices.DeleteFunc(slices.Clone(backends[1:]), func(b backend) bool {
		return strings.HasPrefix(b.name, "sqlite")
	})
	each(t, over, func(t *testing.T, b backend) {
		p := b.open(t, day, lease)
		servers := []*process{start(t, job{settings: p.settings}),
			start(t, job{settings: p.settings})}
		send := func(o request) chan result {
			results := make(chan result, crowd)
			begin := make(chan struct{})
			for i := range crowd {
				go func() {
					<-begin
					a, err := exchange(servers[i%2].addr, o)
					results <- result{a, err}
				}()
			}
			close(begin)
			return results
		}

		// The first is not done before all others have their answers.
		results := send(playing("held", untilTold))
		select {
		case <-servers[0].lines:
		case <-servers[1].lines:
		}
		for range crowd - 1 {
			wantInFlight(t, <-results)
		}
		for _, s := range servers {
			_, err := io.WriteString(s.stdin, "go\n")
			assert.NoError(t, err)
		}
		first := <-results
		require.NoError(t, first.err, "the first: %+v", first)
		require.Equal(t, http.StatusCreated, first.status, "the first: %+v", first)
		require.Empty(t, first.header.Get("Idempotent-Replayed"), "the first: %+v", first)
		again := func(name string, first result) {
			results := send(order("Idempotency-Key: " + name))
			for range crowd {
				r := <-results
				// A Runner in a transaction lets one call of a key look at a time, even if the key
				// is done.
				if p.Atomic && r.status == http.StatusConflict {
					wantInFlight(t, r)
					continue
				}
				wantAgain(t, first, r)
			}
			for _, s := range servers {
				a, err := exchange(s.addr, order("Idempotency-Key: "+name))
				wantAgain(t, first, result{a, err})
			}
		}
		again("held", first)

		// No handler is held: some requests come late, and are answered from the record.
		results = send(order("Idempotency-Key: racing"))
		first = result{}
		inFlight := 0
		for range crowd {
			switch r := <-results; {
			case r.err == nil && r.status == http.StatusCreated && first.status == 0:
				first = r
			case r.err == nil && r.status == http.StatusCreated:
				assert.Equal(t, first.body, r.body, "two answers")
				assert.Equal(t, first.header.Get("Location"), r.header.Get("Location"),
					"two answers")
			default:
				wantInFlight(t, r)
				inFlight++
			}
		}
		again("racing", first)
		effects := p.counts(t)
		assert.Equal(t, 1, effects["held"], "effects: %v", effects)
		assert.Equal(t, 1, effects["racing"], "effects: %v", effects)
		t.Logf("racing: %d of %d were told that it is in flight", inFlight, crowd)
	})
}

func wantInFlight(t *testing.T, r result) {
	t.Helper()
	assert.NoError(t, r.err)
	assert.Equal(t, http.StatusConflict, r.status)
	assert.Contains(t, r.body, "#in-flight")
	assert.NotEmpty(t, r.header.Get("Retry-After"))
}

func wantAgain(t *testing.T, first, r result) {
	t.Helper()
	assert.NoError(t, r.err)
	assert.Equal(t, first.status, r.status)
	assert.Equal(t, first.body, r.body)
	assert.Equal(t, first.header.Get("Location"), r.header.Get("Location"))
	assert.Equal(t, "true", r.header.Get("Idempotent-Replayed"))
}

// death is the place where a process is killed, and the expected result.
type death struct {
	at      string
	effects int
	answer  string // of the other process in the end: a beginning of the body, or a problem's name
	resolve bool
}

// TestKilled: a server process is killed in the middle of a request, whose client got no byte. Its
// retry at another process ends as the documentation of the composition says.
func TestKilled(t *testing.T) {
	const lease = 3 * time.Second // so long that it does not lapse on a busy machine
	inOne := []death{
		{at: beforeEffect, effects: 1},
		{at: afterEffect, effects: 1},
		{at: beforeRecord, effects: 1},
	}
	elsewhere := []death{
		{at: beforeEffect, effects: 1},
		{at: afterEffect, effects: 2}, // it runs again: nothing says that it had its effect
		{at: beforeRecord, effects: 2},
		{at: afterDanger, effects: 1, answer: "#uncertain"}, // it never runs again by itself
		{at: afterDanger, effects: 1, answer: "found in the ledger", resolve: true},
	}
	each(t, stores, func(t *testing.T, b backend) {
		p := b.open(t, day, lease)
		deaths := elsewhere
		if p.Atomic {
			deaths = inOne
		}
		if !slices.Contains([]string{"redis", "postgres claimed", "postgres atomic"}, b.name) {
			deaths = deaths[len(inOne)-1 : len(inOne)] // only one, to save time
		}
		other := start(t, job{settings: p.settings})
		for i, d := range deaths {
			t.Run(fmt.Sprintf("%s, resolve %v", d.at, d.resolve), func(t *testing.T) {
				t.Parallel()
				other := other
				if d.resolve {
					other = start(t, job{settings: p.settings, Resolve: true})
				}
				d.check(t, p, other, fmt.Sprintf("order-%d", i))
			})
		}
	})
}

func (d *death) check(t *testing.T, p *fixture, other *process, name string) {
	victim := start(t, job{settings: p.settings})
	var client sync.WaitGroup
	client.Go(func() {
		a, err := exchange(victim.addr, playing(name, d.at))
		assert.Error(t, err, "the client of the process that was killed has an answer: %d %q",
			a.status, a.body)
	})
	require.Equal(t, "holding", victim.line(), "the process")
	killed := time.Now()
	victim.kill()
	client.Wait()

	a, waited := d.retry(t, other, name)
	assert.False(t, !p.Atomic && waited.Sub(killed) < p.Lease/3,
		"%v after the crash its lease, of %v, was not over", waited.Sub(killed), p.Lease)
	if d.answer == "" {
		d.answer = name + ", by process " + fmt.Sprint(other.cmd.Process.Pid)
	}
	assert.Contains(t, a.body, d.answer, "the retry got %d %q", a.status, a.body)
	for range 3 {
		again, err := exchange(other.addr, order("Idempotency-Key: "+name))
		assert.NoError(t, err, "then %d %q", again.status, again.body)
		assert.Equal(t, a.status, again.status, "then %d %q", again.status, again.body)
		assert.Equal(t, a.body, again.body, "then %d %q", again.status, again.body)
	}
	assert.Equal(t, d.effects, p.counts(t)[name], "effects")
	t.Logf("%s: %d in the end, %v after the crash; %d effects", d.at, a.status,
		waited.Sub(killed), d.effects)
}

// retry sends the request until it is not answered as in flight any more.
func (d *death) retry(t *testing.T, other *process, name string) (answer, time.Time) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		sent := time.Now()
		a, err := exchange(other.addr, order("Idempotency-Key: "+name))
		switch {
		case err != nil:
			t.Fatal(err)
		case a.status == http.StatusCreated:
			return a, time.Now()
		case strings.Contains(a.body, "#uncertain"):
			assert.Equal(t, http.StatusConflict, a.status, "uncertain: %d %v", a.status, a.header)
			assert.Equal(t, "30", a.header.Get("Retry-After"), "uncertain: %d %v", a.status,
				a.header)
			return a, time.Now()
		default:
			wantInFlight(t, result{a, nil})
		}
		select {
		case <-deadline:
			t.Fatalf("in flight for a minute; sent %v ago: %s", time.Since(sent), a.body)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
