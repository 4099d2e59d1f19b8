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

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

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

func newBroker(kind string, addrs []string, stop func() error) *Broker {
	return &Broker{Server: harness.Server{Name: "kafka", Kind: kind}, Addrs: addrs, Close: stop}
}

// ConnectBroker uses a Kafka that runs already. Topics of the benchmarks are made there and
// removed again.
func ConnectBroker(addrs ...string) *Broker {
	return newBroker("a Kafka that others use", addrs, func() error { return nil })
}

// EmbedBroker starts an embedded cluster in this process: its work counts as the client's.
func EmbedBroker() *Broker {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(nodes)))
	return newBroker("embedded broker (kfake) in the client's process", cluster.ListenAddrs(),
		func() error { cluster.Close(); return nil })
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
	stdin := must.Get(cmd.StdinPipe())
	out, to, err := os.Pipe()
	must.Do(err)
	defer func() { _ = out.Close() }()
	cmd.Stdout = to
	err = cmd.Start()
	must.Do(errors.Join(err, to.Close(), out.SetReadDeadline(time.Now().Add(10*time.Second))))
	kind := fmt.Sprintf("embedded broker of %d nodes (kfake) in a process of its own", nodes)
	b = newBroker(kind, nil, func() error {
		_ = stdin.Close() // which ends it; one that does not listen is killed
		late := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		return cmd.Wait()
	})
	b.pid = cmd.Process.Pid
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		must.Do(errors.Join(fmt.Errorf("server: the broker's addresses: %w", err), b.Close()))
	}
	b.Addrs = strings.Split(strings.TrimSpace(line), ",")
	return b, nil
}

// CPU reads the time that the broker's process has used; nil where it is unknown: the broker is not
// ours, or this is not Linux.
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

// Write makes the topic and writes the log in the order of the partitions' offsets, one message of
// each in turn, and waits until all is there.
func (b *Broker) Write(l Log) {
	must.Do(b.admin(func(admin sarama.ClusterAdmin) error {
		return admin.CreateTopic(l.Topic, &sarama.TopicDetail{
			NumPartitions: int32(len(l.IDs)), ReplicationFactor: 1}, false) // a handful
	}))
	p := b.Producer(5 * time.Millisecond)
	defer func() { must.Do(p.Close()) }()
	const atOnce = 20_000
	var messages []*sarama.ProducerMessage
	for n, left := 0, l.Size(); left > 0; n++ {
		for partition, ids := range l.IDs {
			if n < len(ids) {
				left--
				messages = append(messages, l.Message(partition, n))
			}
		}
		if len(messages) >= atOnce || left == 0 {
			must.Do(p.SendMessages(messages))
			messages = nil
		}
	}
}

// Remove removes a topic.
func (b *Broker) Remove(topic string) error {
	return b.admin(func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic) })
}

func (b *Broker) admin(do func(sarama.ClusterAdmin) error) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin(b.Addrs, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
}

// Producer is a client that writes in order and to the partition that a message names.
func (b *Broker) Producer(batch time.Duration) sarama.SyncProducer {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	if batch > 0 { // what is fewer than Messages goes then
		cfg.Producer.Flush.MaxMessages, cfg.Producer.Flush.Messages = 2000, 1000
		cfg.Producer.Flush.Frequency = batch
	}
	cfg.Net.MaxOpenRequests = 1 // in order
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	return must.Get(sarama.NewSyncProducer(b.Addrs, cfg))
}

// Message is the n-th of a partition.
func (l Log) Message(partition, n int) *sarama.ProducerMessage {
	value := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz"), l.ValueSize/26+1)[:l.ValueSize]
	return &sarama.ProducerMessage{
		Topic: l.Topic, Partition: int32(partition), // a handful
		Key:   sarama.StringEncoder(fmt.Sprintf("account-%d-%d", partition, n%l.Keys)),
		Value: sarama.ByteEncoder(value),
		Headers: []sarama.RecordHeader{{Key: []byte("message-id"),
			Value: []byte(l.IDs[partition][n])}},
	}
}
