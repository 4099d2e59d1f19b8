package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/backoff"
)

// startTime is how long the program may take until it listens.
const startTime = 30 * time.Second

// program is the tested program. It is running, except between a kill and the next start.
type program struct {
	args   []string
	env    []string
	addr   string // the address that it listens on; empty: nobody connects to it
	output *cli.LastOutput

	mu    sync.Mutex
	kills []time.Time
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	died  error         // why it ended without a kill
}

// start starts the program and waits until it listens.
func (p *program) start(ctx context.Context) error {
	//nolint:gosec,noctx // it is the user's, and is killed
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.env...), p.output, p.output
	own(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the program does not start: %w", err)
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // ProcessState tells
		p.mu.Lock()
		if p.cmd == cmd {
			p.died = fmt.Errorf("the program has ended by itself: %v%s", cmd.ProcessState,
				p.printed())
		}
		p.mu.Unlock()
		close(ended)
	}()
	return p.listening(ctx, ended)
}

// printed returns the last output of the program, to follow a sentence.
func (p *program) printed() string {
	if text := p.output.String(); text != "" {
		return "\n" + text
	}
	return "; it has printed nothing"
}

// listening waits until the program accepts connections.
func (p *program) listening(ctx context.Context, ended <-chan struct{}) error {
	if p.addr == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", p.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return p.failed()
		default:
		}
		if backoff.Sleep(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("the program does not listen on %s: %w%s", p.addr, err, p.printed())
		}
	}
}

// failed returns an error if the program has ended without a kill, and nil otherwise.
func (p *program) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.died
}

// kill records the time of a kill and ends the program.
func (p *program) kill() {
	p.mu.Lock()
	p.kills = append(p.kills, time.Now())
	p.mu.Unlock()
	p.stop()
}

// stop ends the program and its children, if it runs.
func (p *program) stop() {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.cmd = nil
	p.mu.Unlock()
	if cmd != nil {
		killAll(cmd)
		<-ended
	}
}

// harass kills the program o.Kills times, at random moments, and starts it again each time.
func (p *program) harass(ctx context.Context, o *Options, random *rand.Rand,
	killed func()) error {
	for range o.Kills {
		pause := time.Duration((0.2 + 1.6*random.Float64()) * float64(o.Every))
		if err := backoff.Sleep(ctx, pause); err != nil {
			return err
		}
		if err := p.failed(); err != nil {
			return err
		}
		p.kill()
		killed()
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killsIn returns the numbers, from 1, of the kills between two moments.
func killsIn(kills []time.Time, from, to time.Time) (numbers []int) {
	for i, at := range kills {
		if !at.Before(from) && !at.After(to) {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}
