// Package server gives the benchmarks their servers: a Redis, databases and a Kafka, each a process
// of its own, an embedded one, or one that is named; and a network that is slower than loopback.
package server

import (
	"context"
	"errors"
	"io"
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

// databaseOptions are larger than the servers of the tests have them: what is compared is what a
// transaction costs, not how often a small cache or a small log has to be emptied. Durability is as
// shipped: every commit waits for the disk.
var databaseOptions = []string{
	"ONCEWARD_POSTGRES_OPTIONS=-c shared_buffers=512MB -c max_wal_size=4GB -c checkpoint_timeout=30min",
	"ONCEWARD_MARIADB_OPTIONS=--innodb-buffer-pool-size=512M --innodb-log-file-size=1G",
}

type process struct {
	dir string // empty: none
	pid int    // of its first process; 0: none
}

// start starts a server of a kind that the script knows, on loopback, and returns its address. A
// port of 0 is any free one. stop has to be called also after an error.
func (p *process) start(ctx context.Context, kind string, port int) (address string) {
	if port == 0 {
		l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
		port = l.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // it listens on TCP
		_ = l.Close()
	}
	p.dir = must.Get(os.MkdirTemp("", "onceward-bench"))
	must.Do(os.Chmod(p.dir, 0o755)) // servers give up root's rights
	address = must.Get(script(ctx, "private", kind, p.home(), strconv.Itoa(port)))
	data := must.Get(os.ReadFile(filepath.Join(p.home(), "1", "pid")))
	pid, _, _ := strings.Cut(string(data), " ")
	p.pid = must.Get(strconv.Atoi(strings.TrimSpace(pid)))
	return address
}

func (p *process) home() string { return filepath.Join(p.dir, "server") }

func (p *process) stop() (err error) {
	if p.dir == "" {
		return nil
	}
	if p.pid != 0 {
		// Not the caller's context: it may have ended, and the server must end as well.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
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
// there is no such process, or this is not Linux.
func cpuOf(pid int) harness.CPU {
	proc, err := procfs.NewDefaultFS()
	if err != nil || pid == 0 {
		return nil
	}
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
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	})
}

// Delay is a TCP proxy in this process that holds back everything for a while, so that a
// server on loopback looks like one across a network. It keeps order and bandwidth.
//
// It costs CPU of this process, and timers are late by up to a millisecond: only
// comparisons of sides that all go through it mean something.
type Delay struct {
	upstream string
	oneWay   time.Duration
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn // a few hundred, of clients that keep theirs
	closed bool
}

// NewDelay starts a proxy to upstream that adds oneWay in each direction.
func NewDelay(ctx context.Context, upstream string, oneWay time.Duration) *Delay {
	l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	d := &Delay{upstream: upstream, oneWay: oneWay, listener: l}
	d.running.Go(func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			d.running.Go(func() { d.serve(client) })
		}
	})
	return d
}

// Addr is where clients connect.
func (d *Delay) Addr() string { return d.listener.Addr().String() }

// Close cuts all connections and waits for the proxy's goroutines.
func (d *Delay) Close() error {
	err := d.listener.Close()
	d.mu.Lock()
	d.closed = true
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
	return err
}

func (d *Delay) serve(client net.Conn) {
	server, err := net.Dial("tcp", d.upstream) //nolint:noctx // Close cuts it
	if err != nil {
		_ = client.Close()
		return
	}
	if !d.keep(client, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { d.copy(server, client) })
	both.Go(func() { d.copy(client, server) })
	both.Wait()
}

// keep notes the connections for Close, or closes them when it has been called.
func (d *Delay) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		if d.closed {
			_ = c.Close()
		}
	}
	d.conns = append(d.conns, conns...)
	return !d.closed
}

type chunk struct {
	data []byte
	due  time.Time
}

// copy passes data on when it is due. Either end's end is both ends'.
func (d *Delay) copy(to, from net.Conn) {
	way := make(chan chunk, 1024)
	var writer sync.WaitGroup
	writer.Go(func() { deliver(to, from, way) })
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			way <- chunk{buf[:n], time.Now().Add(d.oneWay)}
		}
		if err != nil {
			break
		}
	}
	close(way)
	writer.Wait()
	_ = to.Close()
}

func deliver(to, from net.Conn, way <-chan chunk) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for c := range way {
		if wait := time.Until(c.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		if _, err := to.Write(c.data); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			_ = from.Close() // the reader ends, then the channel
		}
	}
}
