package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// TestMain lets this program be the broker's process, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == BrokerArg {
		if err := ServeBroker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What is written can be read back, partition by partition and in order, from a broker
// whose CPU is told and that ends with Close.
func TestStartBroker(t *testing.T) {
	b, err := StartBroker(t.Context(), os.Args[0], BrokerArg)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Addrs) != nodes || !b.Own {
		t.Errorf("addresses %q, own: %v", b.Addrs, b.Own)
	}
	log := Log{Topic: "t", IDs: [][]string{{"a", "b", "c"}, nil, {"d"}}, ValueSize: 30, Keys: 2}
	if err := b.Write(log); err != nil {
		t.Fatal(err)
	}
	for partition, ids := range log.IDs {
		wantMessages(t, b, log, int32(partition), ids)
	}
	if err := b.Remove(log.Topic); err != nil {
		t.Error(err)
	}
	if read := b.CPU(); read != nil {
		if used, err := read(t.Context()); err != nil || used <= 0 || used > time.Minute {
			t.Errorf("CPU %v, %v", used, err)
		}
	} else if _, err := os.Stat("/proc/self/schedstat"); err == nil {
		t.Error("the CPU of the process is not told")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", b.Addrs[0]); err == nil {
		_ = conn.Close()
		t.Error("it still runs")
	}
}

func wantMessages(t *testing.T, b *Broker, log Log, partition int32, ids []string) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewConsumer(b.Addrs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	c, err := client.ConsumePartition(log.Topic, partition, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i, id := range ids {
		select {
		case m := <-c.Messages():
			key := fmt.Sprintf("account-%d-%d", partition, i%log.Keys)
			if len(m.Headers) != 1 || string(m.Headers[0].Key) != "message-id" ||
				string(m.Headers[0].Value) != id || string(m.Key) != key ||
				len(m.Value) != log.ValueSize {
				t.Errorf("partition %d, message %d: %+v, want id %s and key %s", partition,
					i, m, id, key)
			}
		case <-t.Context().Done():
			t.Fatal("it is not there")
		}
	}
	if got := c.HighWaterMarkOffset(); len(ids) > 0 && got != int64(len(ids)) {
		t.Errorf("partition %d has %d messages, want %d", partition, got, len(ids))
	}
}

func TestStartBrokerOfSomethingElse(t *testing.T) {
	if _, err := StartBroker(t.Context(), "true"); err == nil {
		t.Error("a program without an address is a broker")
	}
	if _, err := StartBroker(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no program is a broker")
	}
}

func TestOthersBroker(t *testing.T) {
	b := ConnectBroker("127.0.0.1:1")
	if b.CPU() != nil || b.Own {
		t.Error("its CPU is told, or it is ours")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
