package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

// process is one worker process.
type process struct {
	name  string // w1, and w1' after it has been started again
	slot  string // w1
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  *cli.LastOutput

	killed   bool // by the supervisor
	leaving  bool // it has been asked to leave
	assigned bool // it has partitions
}

// notice is what a supervisor learns about a process: an event, or its end.
type notice struct {
	from  *process
	event worker.Event
	// ended reports that the process is gone. err is the reason, or nil if the process left when
	// asked.
	ended bool
	err   error
}

// startProcess runs the program's hidden worker command. It sends notices to out, and the caller
// must read them up to the one whose field ended is true.
func startProcess(cfg worker.Config, out chan<- notice) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: cfg.Name, slot: strings.TrimRight(cfg.Name, "'"), said: new(cli.LastOutput)}
	p.cmd = exec.Command(exe, WorkerCommand) //nolint:noctx // it is ended by stop and kill, never by surprise
	p.cmd.Stderr = p.said
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := p.send(cfg); err != nil {
		err = fmt.Errorf("configure a worker: %w", err)
		return nil, errors.Join(err, p.cmd.Process.Kill(), p.cmd.Wait())
	}
	go p.listen(stdout, out)
	return p, nil
}

func (p *process) send(v any) error { return json.NewEncoder(p.stdin).Encode(v) }

// listen ends when the process does.
func (p *process) listen(stdout io.Reader, out chan<- notice) {
	scan := bufio.NewScanner(stdout)
	for scan.Scan() {
		var e worker.Event
		if json.Unmarshal(scan.Bytes(), &e) == nil {
			out <- notice{from: p, event: e}
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // the scanner stops at a line that is too long
	err := p.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", p.name, err, p.said)
	}
	out <- notice{from: p, ended: true, err: err}
}

// stop asks the process to finish what it runs, commit, and leave the group.
func (p *process) stop() {
	p.leaving = true
	if p.cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = p.stdin.Close() // for systems without signals
	}
}

// kill ends the process at once, with SIGKILL.
func (p *process) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill() // it fails only if the process is gone
}
