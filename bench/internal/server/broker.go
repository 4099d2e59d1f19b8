package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// nodes of the embedded cluster: partitions and the group's coordinator are spread over
// them, as they are in production.
const nodes = 3

// Broker is a running Kafka.
type Broker struct {
	harness.Server
	Addrs []string // host:port of its nodes
	Close func() error

	pid int // of its own process; 0: none, or not ours
}

// ConnectBroker uses a Kafka that runs already. Topics of the benchmarks are made there and
// removed again.
func ConnectBroker(addrs ...string) *Broker {
	return &Broker{Server: harness.Server{Name: "kafka", Kind: "a Kafka that others use"},
		Addrs: addrs, Close: func() error { return nil }}
}

// EmbedBroker starts an embedded cluster in this process: its work counts as the client's.
func EmbedBroker() *Broker {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(nodes)))
	b := ConnectBroker(cluster.ListenAddrs()...)
	b.Kind = "embedded broker (kfake) in the client's process"
	b.Close = func() error { cluster.Close(); return nil }
	return b
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
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Stderr = os.Stderr
	stdin, out := must.Get(cmd.StdinPipe()), must.Get(cmd.StdoutPipe())
	must.Do(cmd.Start())
	b = ConnectBroker()
	b.Kind = fmt.Sprintf("embedded broker of %d nodes (kfake) in a process of its own", nodes)
	b.pid = cmd.Process.Pid
	b.Close = func() error {
		_ = stdin.Close() // which ends it; one that does not listen is killed
		defer time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
		return cmd.Wait()
	}
	// A program that says nothing is killed, and the pipe ends.
	defer time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		must.Do(errors.Join(fmt.Errorf("server: the broker's addresses: %w", err), b.Close()))
	}
	b.Addrs = strings.Split(strings.TrimSpace(line), ",")
	return b, nil
}

// CPU reads the time that the broker's process has used; nil where it is unknown.
func (b *Broker) CPU() harness.CPU { return cpuOf(b.pid) }

// BrokerArg is the argument that makes a program the embedded broker: it calls [ServeBroker].
const BrokerArg = "broker"

// Log is a topic's contents, to be written before anything is timed.
type Log struct {
	Topic     string
	IDs       [][]string // of each partition, in order; they stand in the header "message-id"
	ValueSize int        // bytes of each message
	Keys      int        // of Kafka, among which the messages of a partition are spread
}

// Size is the number of messages.
func (l Log) Size() (n int) {
	for _, ids := range l.IDs {
		n += len(ids)
	}
	return n
}

// Client writes to the partition that a message names, in order, when there is a batch of them or
// the time has passed.
func (b *Broker) Client(linger time.Duration) *kgo.Client {
	return must.Get(kgo.NewClient(kgo.SeedBrokers(b.Addrs...), kgo.ProducerLinger(linger),
		kgo.ProducerBatchMaxBytes(128<<10), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner())))
}

// Write makes the topic and writes the log in the order of the partitions' offsets, one message of
// each in turn, and waits until all is there.
func (b *Broker) Write(ctx context.Context, l Log) {
	client := b.Client(5 * time.Millisecond)
	defer client.Close()
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

// Remove removes a topic.
func (b *Broker) Remove(ctx context.Context, topic string) error {
	client := b.Client(0)
	defer client.Close()
	gone, err := kadm.NewClient(client).DeleteTopic(ctx, topic)
	return errors.Join(err, gone.Err)
}

// Message is the n-th of a partition.
func (l Log) Message(partition, n int) *kgo.Record {
	return &kgo.Record{Topic: l.Topic, Partition: int32(partition), // a handful
		Key:     fmt.Appendf(nil, "account-%d-%d", partition, n%l.Keys),
		Value:   bytes.Repeat([]byte("x"), l.ValueSize),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(l.IDs[partition][n])}}}
}
