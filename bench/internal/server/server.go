// Package server gives the benchmarks their servers: a Redis, databases and a Kafka, each a process
// of its own, an embedded one, or one that is named; and a network that is slower than loopback.
package server

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// Addresses that are no address.
const (
	Private  = "private"  // a server that is started, and stopped by Close
	Durable  = "durable"  // a Redis like that, with an append-only file that is synced each second
	Embedded = "embedded" // a Redis in this process
	None     = "none"     // a server that does not take part
	Listed   = "listed"   // a server of which only the name is wanted: it is not started
)

// databaseOptions are larger than those of servers for tests: transactions are compared, and not
// how often a small cache or log is emptied. Every commit waits for the disk, as by default.
var databaseOptions = []string{
	"ONCEWARD_POSTGRES_OPTIONS=-c shared_buffers=512MB -c max_wal_size=4GB -c checkpoint_timeout=30min",
	"ONCEWARD_MARIADB_OPTIONS=--innodb-buffer-pool-size=512M --innodb-log-file-size=1G",
}

type process struct {
	dir string // empty: none
	pid int    // of its first process; 0: none
}

// start starts a server of a kind that the script knows, on a free port of loopback, and returns
// its address. stop has to be called also after an error.
func (p *process) start(ctx context.Context, kind string) (address string) {
	l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	_, port, err := net.SplitHostPort(l.Addr().String())
	must.Do(errors.Join(err, l.Close()))
	p.dir = must.Get(os.MkdirTemp("", "onceward-bench"))
	must.Do(os.Chmod(p.dir, 0o755)) // servers give up root's rights
	address = must.Get(script(ctx, "private", kind, p.home(), port))
	data := must.Get(os.ReadFile(filepath.Join(p.home(), "1", "pid")))
	pid, _, _ := strings.Cut(string(data), " ")
	p.pid = must.Get(strconv.Atoi(strings.TrimSpace(pid)))
	return address
}

func (p *process) home() string { return filepath.Join(p.dir, "server") }

func (p *process) stop(ctx context.Context) (err error) {
	if p.pid != 0 {
		_, err = script(ctx, "private-down", p.home())
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func script(ctx context.Context, args ...string) (out string, err error) {
	defer must.Catch(&err)
	program := filepath.Join(must.Get(Root()), "scripts", "servers.sh")
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), databaseOptions...)
	var failed strings.Builder
	cmd.Stderr = &failed
	text, err := cmd.Output()
	must.True(err == nil, "server: servers.sh %s: %w\n%s", strings.Join(args, " "), err, &failed)
	return strings.TrimSpace(string(text)), nil
}

// Root is the folder of the repository that this runs in.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "scripts", "servers.sh")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("server: no scripts/servers.sh above this folder: " +
				"name a server, or go into the repository")
		}
	}
	return "", err
}

// cpuOf reads the CPU time of a process and its children, as /proc has it. Nil where it cannot:
// the process is not ours, or this is not Linux.
func cpuOf(pid int) harness.CPU {
	proc, _ := procfs.NewDefaultFS()
	if _, err := familyTime(proc, pid); err != nil {
		return nil
	}
	return func(context.Context) time.Duration { return must.Get(familyTime(proc, pid)) }
}

// familyTime adds up a process, its children, and those of its children that have ended. schedstat
// counts nanoseconds, stat hundredths of a second. What ends between two reads is passed over.
func familyTime(proc procfs.FS, pid int) (total time.Duration, err error) {
	defer must.Catch(&err)
	found := false
	for _, p := range must.Get(proc.AllProcs()) {
		stat, err := p.Stat()
		if err != nil || p.PID != pid && stat.PPID != pid {
			continue
		}
		if p.PID == pid {
			found = true
			total += time.Duration(stat.CUTime+stat.CSTime) * 10 * time.Millisecond
		}
		threads, _ := proc.AllThreads(p.PID)
		for _, thread := range threads {
			if spent, err := thread.Schedstat(); err == nil {
				total += time.Duration(spent.RunningNanoseconds) // centuries
			}
		}
	}
	must.True(found, "server: no process %d", pid)
	return total, nil
}

// Busy keeps one processor at work until the setup ends, with a program that ends with this one at
// the latest.
func Busy(setup *harness.Setup) {
	//nolint:noctx // it is killed
	cmd := exec.Command("sh", "-c",
		`while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null`)
	must.Do(cmd.Start())
	setup.Defer(func() error {
		_, _ = cmd.Process.Kill(), cmd.Wait() // it was killed
		return nil
	})
}

// Delay starts a TCP proxy in this process, for the time of a setup, and returns its address. It
// holds everything back for oneWay in each direction, so that a server on loopback looks like one
// across a network. It costs CPU of this process, and timers are late by up to a millisecond: only
// comparisons of sides that all go through it mean something.
func Delay(ctx context.Context, s *harness.Setup, upstream string, oneWay time.Duration) string {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	var running sync.WaitGroup
	s.Defer(func() error { running.Wait(); return nil })
	s.Defer(func() error { cancel(); return l.Close() })
	running.Go(func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			running.Go(func() { connect(ctx, client, upstream, oneWay) })
		}
	})
	return l.Addr().String()
}

// connect serves a client until an end closes, or the context ends.
func connect(ctx context.Context, client net.Conn, upstream string, oneWay time.Duration) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", upstream)
	if err != nil {
		return
	}
	ends := func() { _, _ = client.Close(), server.Close() }
	defer context.AfterFunc(ctx, ends)()
	var ways sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		type chunk struct {
			data []byte
			due  time.Time
		}
		way := make(chan chunk, 1024)
		ways.Go(func() {
			defer close(way)
			for {
				data := make([]byte, 16<<10)
				n, err := from.Read(data)
				way <- chunk{data[:n], time.Now().Add(oneWay)}
				if err != nil {
					return
				}
			}
		})
		ways.Go(func() {
			for c := range way {
				<-time.After(time.Until(c.due))
				if _, err := to.Write(c.data); err != nil {
					ends() // the reader ends, then the channel
				}
			}
			ends()
		})
	}
	ways.Wait()
}
