// Package server gives the benchmarks their servers. Each Redis, database or Kafka is a process of
// its own, embedded in this process, or a server that the command line names. The package also
// simulates a network that is slower than loopback.
package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// Names for servers without an address.
const (
	Private  = "private"  // a server that is started for the run; Close stops it
	Durable  = "durable"  // a private Redis with an append-only file that is synced each second
	Embedded = "embedded" // a Redis in this process
	None     = "none"     // a server that is left out
	Listed   = "listed"   // a server that is only listed by name: it is not started
)

// databaseOptions are larger than for servers in tests: the benchmarks compare transactions, not
// how often a small cache or log is emptied. Every commit waits for the disk, which is the default.
var databaseOptions = []string{
	"ONCEWARD_POSTGRES_OPTIONS=-c shared_buffers=512MB -c max_wal_size=4GB -c checkpoint_timeout=30min",
	"ONCEWARD_MARIADB_OPTIONS=--innodb-buffer-pool-size=512M --innodb-log-file-size=1G",
}

type process struct {
	dir string // empty: there is none
	pid int    // of its first process; 0: there is none
}

// start starts a server of a kind that the script knows, on a free loopback port, and returns its
// address. Call stop even after an error.
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

// Root returns the root folder of the repository that the program runs in.
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

// cpuOf reads the CPU time of a process and its children from /proc. It returns nil if it cannot:
// the process is not ours, or this is not Linux.
func cpuOf(pid int) harness.CPU {
	proc, _ := procfs.NewDefaultFS()
	if _, err := familyTime(proc, pid); err != nil {
		return nil
	}
	return func(context.Context) time.Duration { return must.Get(familyTime(proc, pid)) }
}

// familyTime adds up the time of a process, its children, and those of its children that have
// ended. schedstat counts nanoseconds, stat hundredths of a second. It skips a process that ends
// between two reads.
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
				total += time.Duration(spent.RunningNanoseconds) // it overflows after centuries
			}
		}
	}
	must.True(found, "server: no process %d", pid)
	return total, nil
}

// Busy keeps one processor busy until the setup ends. It starts a program that ends no later than
// this one.
func Busy(setup *harness.Setup) {
	//nolint:noctx // the program is killed
	cmd := exec.Command("sh", "-c",
		`while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null`)
	must.Do(cmd.Start())
	setup.Defer(func() error {
		_, _ = cmd.Process.Kill(), cmd.Wait() // Wait reports that it was killed
		return nil
	})
}

// Delay starts a TCP proxy in this process until the setup ends, and returns its address. The proxy
// delays all data by oneWay in each direction, so that a server on loopback behaves like a server
// across a network. The proxy uses CPU of this process, and its timers are up to a millisecond
// late. So compare only sides that all go through the proxy.
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

// connect serves a client until one end closes or the context ends.
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
					ends() // it ends the reader, and then the channel
				}
			}
			ends()
		})
	}
	ways.Wait()
}

// nodes is how many nodes the embedded cluster has: partitions and the group's coordinator are
// spread over them, as in production.
const nodes = 3

// Broker is a running Kafka.
type Broker struct {
	harness.Server
	harness.Cleanup          // stops what was started
	Addrs           []string // host:port of its nodes

	pid int // of its own process; 0: none, or not a process of ours
}

// ConnectBroker uses a running Kafka. The benchmarks create and remove their topics there.
func ConnectBroker(addrs ...string) *Broker {
	return &Broker{Server: harness.Server{Name: "kafka", Kind: "a Kafka that others use"},
		Addrs: addrs}
}

// EmbedBroker starts an embedded cluster in this process: its work counts as work of the client.
func EmbedBroker() *Broker {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(nodes)))
	b := ConnectBroker(cluster.ListenAddrs()...)
	b.Kind = "embedded broker (kfake) in the client's process"
	b.Defer(func() error { cluster.Close(); return nil })
	return b
}

// ServeBroker runs in the process that [StartBroker] starts. It is an embedded cluster that writes
// its addresses to out and runs until in ends, so it does not outlive its parent.
func ServeBroker(in io.Reader, out io.Writer) (err error) {
	defer must.Catch(&err)
	b := EmbedBroker()
	defer func() { must.Do(b.Close()) }()
	must.Get(fmt.Fprintln(out, strings.Join(b.Addrs, ",")))
	must.Get(io.Copy(io.Discard, in))
	return nil
}

// StartBroker starts the program with args, and waits for its addresses. The program must call
// [ServeBroker] with its standard input and output. Close stops it.
func StartBroker(ctx context.Context, program string, args ...string) (b *Broker, err error) {
	defer must.Catch(&err)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Stderr = os.Stderr
	stdin, out := must.Get(cmd.StdinPipe()), must.Get(cmd.StdoutPipe())
	must.Do(cmd.Start())
	b = ConnectBroker()
	b.Kind = fmt.Sprintf("embedded broker of %d nodes (kfake) in a process of its own", nodes)
	b.pid = cmd.Process.Pid
	b.Defer(func() error {
		_ = stdin.Close() // this ends the program; if it does not read its input, it is killed
		defer time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
		return cmd.Wait()
	})
	// If the program prints nothing, this timer kills it, and then the pipe ends.
	defer time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		must.Do(errors.Join(fmt.Errorf("server: the broker's addresses: %w", err), b.Close()))
	}
	b.Addrs = strings.Split(strings.TrimSpace(line), ",")
	return b, nil
}

// CPU returns a function that reads the time of the broker's process; nil if it is unknown.
func (b *Broker) CPU() harness.CPU { return cpuOf(b.pid) }

// BrokerArg is the argument that makes a program run as the embedded broker: it then calls
// [ServeBroker].
const BrokerArg = "broker"

// Log is the content of a topic, which is written before anything is timed.
type Log struct {
	Topic     string
	IDs       [][]string // for each partition, in order; for the header "message-id"
	ValueSize int        // bytes of each message
	Keys      int        // number of Kafka keys over which the messages of a partition are spread
}

// Size is the number of messages.
func (l Log) Size() (n int) {
	for _, ids := range l.IDs {
		n += len(ids)
	}
	return n
}

// Client returns a client that writes to the partition named in a message, in order. It sends when
// a batch is full or linger has passed.
func (b *Broker) Client(linger time.Duration) *kgo.Client {
	return must.Get(kgo.NewClient(kgo.SeedBrokers(b.Addrs...), kgo.ProducerLinger(linger),
		kgo.ProducerBatchMaxBytes(128<<10), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner())))
}

// Write makes the topic until the setup ends. It writes the log in the order of the partitions'
// offsets, one message of each partition in turn, and waits until all messages are there.
func (b *Broker) Write(ctx context.Context, s *harness.Setup, l Log) {
	client := b.Client(5 * time.Millisecond)
	defer client.Close()
	s.DeferCtx(func(ctx context.Context) error {
		client := b.Client(0)
		defer client.Close()
		gone, err := kadm.NewClient(client).DeleteTopic(ctx, l.Topic)
		return errors.Join(err, gone.Err)
	})
	made := must.Get(kadm.NewClient(client).CreateTopic(ctx, int32(len(l.IDs)), 1, nil, l.Topic))
	must.Do(made.Err)
	var written kgo.FirstErrPromise
	for n, left := 0, l.Size(); left > 0; n++ {
		for partition, ids := range l.IDs {
			if n < len(ids) {
				left--
				client.Produce(ctx, l.Message(partition, n), written.Promise())
			}
		}
	}
	must.Do(written.Err())
}

// Message returns the n-th message of a partition.
func (l Log) Message(partition, n int) *kgo.Record {
	return &kgo.Record{Topic: l.Topic, Partition: int32(partition), // there are few partitions
		Key:     fmt.Appendf(nil, "account-%d-%d", partition, n%l.Keys),
		Value:   bytes.Repeat([]byte("x"), l.ValueSize),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(l.IDs[partition][n])}}}
}
