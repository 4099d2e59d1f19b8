// Package server gives the benchmarks their servers: a Redis, databases and a Kafka, each a process
// of its own, an embedded one, or one that is named; and a network that is slower than loopback.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
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

// process is a server that scripts/servers.sh has started.
type process struct {
	dir string // empty: none
	pid int    // of its first process; 0: none
}

// start starts a server of a kind that the script knows, on loopback, and returns its address. A
// port of 0 is any free one. stop has to be called also after an error.
func start(ctx context.Context, kind string, port int) (p process, address string, err error) {
	if port == 0 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return p, "", fmt.Errorf("server: %w", err)
		}
		port = l.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // it listens on TCP
		_ = l.Close()
	}
	if p.dir, err = os.MkdirTemp("", "onceward-bench"); err != nil {
		return p, "", fmt.Errorf("server: %w", err)
	}
	if err := os.Chmod(p.dir, 0o755); err != nil { //nolint:gosec // servers give up root's rights
		return p, "", fmt.Errorf("server: %w", err)
	}
	if address, err = script(ctx, "private", kind, p.home(), strconv.Itoa(port)); err != nil {
		return p, "", err
	}
	data, err := os.ReadFile(filepath.Join(p.home(), "1", "pid"))
	if err != nil {
		return p, "", fmt.Errorf("server: %w", err)
	}
	pid, _, _ := strings.Cut(string(data), " ")
	p.pid, err = strconv.Atoi(strings.TrimSpace(pid))
	return p, address, err
}

func (p process) home() string { return filepath.Join(p.dir, "server") }

// stop ends the server and removes its files.
func (p process) stop() (err error) {
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

func script(ctx context.Context, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts", "servers.sh"), args...)
	cmd.Env = append(os.Environ(), databaseOptions...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("server: servers.sh %s: %w\n%s", strings.Join(args, " "), err,
			failed.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Root is the folder of the repository that this runs in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "servers.sh")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New(
				"server: no scripts/servers.sh above this folder: name a server, or go into the repository")
		}
	}
}

// cpuOf reads the CPU time of a process and its children, as /proc has it. Nil where it cannot:
// there is no such process, or this is not Linux.
func cpuOf(pid int) func(context.Context) (time.Duration, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil || pid == 0 {
		return nil
	}
	if _, err := familyTime(proc, pid); err != nil {
		return nil
	}
	return func(context.Context) (time.Duration, error) { return familyTime(proc, pid) }
}

// familyTime adds up a process, its children, and those of its children that have ended. schedstat
// counts nanoseconds, stat hundredths of a second. What ends between two reads is passed over.
func familyTime(proc procfs.FS, pid int) (total time.Duration, err error) {
	all, err := proc.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("server: %w", err)
	}
	found := false
	for _, p := range all {
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
				total += time.Duration(spent.RunningNanoseconds) //nolint:gosec // centuries
			}
		}
	}
	if !found {
		return 0, fmt.Errorf("server: no process %d", pid)
	}
	return total, nil
}

// Busy keeps one processor at work, with a program that ends with this one at the latest.
func Busy() (stop func() error, err error) {
	//nolint:noctx // stop kills it
	cmd := exec.Command("sh", "-c",
		`while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null`)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	}, nil
}
