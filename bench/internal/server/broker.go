package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// nodes of the embedded cluster: partitions and the group's coordinator are spread over
// them, as they are in production.
const nodes = 3

// Broker is a running Kafka.
type Broker struct {
	// Addrs are host:port of its nodes.
	Addrs []string
	// Own says that nobody else uses it.
	Own bool

	pid  int // of its own process; 0: none, or not ours
	stop func() error
}

// ConnectBroker uses a Kafka that runs already. Topics of the benchmarks are made there and
// removed again.
func ConnectBroker(addrs ...string) *Broker {
	return &Broker{Addrs: addrs, stop: func() error { return nil }}
}

// EmbedBroker starts an embedded cluster in this process: its work counts as the client's.
func EmbedBroker() *Broker {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(nodes)))
	return &Broker{Addrs: cluster.ListenAddrs(), Own: true, stop: func() error {
		cluster.Close()
		return nil
	}}
}

// ServeBroker is the process that [StartBroker] starts: an embedded cluster that writes its
// addresses to out and lives until in ends, and so no longer than its parent.
func ServeBroker(in io.Reader, out io.Writer) (err error) {
	defer must.Catch(&err)
	b := EmbedBroker()
	defer func() { must.Do(b.Close()) }()
	must.Get(fmt.Fprintln(out, strings.Join(b.Addrs, ",")))
	must.Get(io.Copy(io.Discard, in))
	return nil
}

// StartBroker starts the program with args, which has to call [ServeBroker] with its standard input
// and output, and waits for its addresses. Close stops it.
func StartBroker(ctx context.Context, program string, args ...string) (b *Broker, err error) {
	defer must.Catch(&err)
	cmd := exec.Command(program, args...) //nolint:noctx // Close stops it, gently
	cmd.Stderr = os.Stderr
	stdin, stdout := must.Get(cmd.StdinPipe()), must.Get(cmd.StdoutPipe())
	must.Do(cmd.Start())
	b = &Broker{Own: true, pid: cmd.Process.Pid, stop: func() error {
		_ = stdin.Close() // which ends it; one that does not listen is killed
		late := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		return cmd.Wait()
	}}
	lines := make(chan string, 1)
	go func() { // ends with the process, at the latest
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		lines <- strings.TrimSpace(line)
	}()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case line := <-lines:
		if b.Addrs = strings.Split(line, ","); line != "" {
			return b, nil
		}
		err = errors.New("server: the broker's process ended without an address")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, b.Close())
}

// Close stops the broker if it was started here.
func (b *Broker) Close() error { return b.stop() }

// Name of the broker among the versions.
func (b *Broker) Name() string { return "kafka" }

// Version is unknown: brokers do not tell it.
func (b *Broker) Version(context.Context) string { return "" }

// CPU reads the time that the broker's process has used; nil where it is unknown: the broker is not
// ours, or this is not Linux.
func (b *Broker) CPU() harness.CPU { return cpuOf(b.pid) }

// Kind says in words where the broker is.
func (b *Broker) Kind() string {
	switch {
	case b.pid != 0:
		return fmt.Sprintf("embedded broker of %d nodes (kfake) in a process of its own", nodes)
	case b.Own:
		return "embedded broker (kfake) in the client's process"
	default:
		return "a Kafka that others use"
	}
}

// BrokerArg is the argument that makes a program the embedded broker: it calls [ServeBroker].
const BrokerArg = "broker"
