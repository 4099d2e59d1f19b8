package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
)

// TestMain also runs the broker's process.
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

// Messages that were written to a broker can be read back, by partition and in order. Its CPU time
// is known, and it ends with Close.
func TestStartBroker(t *testing.T) {
	b, err := StartBroker(t.Context(), os.Args[0], BrokerArg)
	require.NoError(t, err)
	assert.Len(t, b.Addrs, nodes)
	log := Log{Topic: "t", IDs: [][]string{{"a", "b", "c"}, nil, {"d"}}, ValueSize: 30, Keys: 2}
	setup := &harness.Setup{}
	b.Write(t.Context(), setup, log)
	for partition, ids := range log.IDs {
		wantMessages(t, b, log, int32(partition), ids)
	}
	require.NoError(t, setup.Close())
	if read := b.CPU(); read != nil {
		used := read(t.Context())
		assert.True(t, used > 0 && used < time.Minute, "%v", used)
	} else {
		assert.NoFileExists(t, "/proc/self/schedstat", "the CPU of the process is unknown")
	}
	require.NoError(t, b.Close())
	_, err = net.Dial("tcp", b.Addrs[0])
	require.Error(t, err, "it still runs")
}

func wantMessages(t *testing.T, b *Broker, log Log, partition int32, ids []string) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewConsumer(b.Addrs, cfg)
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	c, err := client.ConsumePartition(log.Topic, partition, sarama.OffsetOldest)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	for i, id := range ids {
		select {
		case m := <-c.Messages():
			require.Len(t, m.Headers, 1)
			assert.Equal(t, []string{"message-id", id,
				fmt.Sprintf("account-%d-%d", partition, i%log.Keys)},
				[]string{string(m.Headers[0].Key), string(m.Headers[0].Value), string(m.Key)})
			assert.Len(t, m.Value, log.ValueSize)
		case <-t.Context().Done():
			t.Fatal("the message is not there")
		}
	}
	if len(ids) > 0 {
		assert.Equal(t, int64(len(ids)), c.HighWaterMarkOffset())
	}
}

func TestStartBrokerOfSomethingElse(t *testing.T) {
	_, err := StartBroker(t.Context(), "true")
	require.Error(t, err, "a program without an address is a broker")
	_, err = StartBroker(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.Error(t, err, "no program is a broker")
}

func TestOthersBroker(t *testing.T) {
	b := ConnectBroker("127.0.0.1:1")
	assert.Nil(t, b.CPU())
	assert.NoError(t, b.Close())
}
