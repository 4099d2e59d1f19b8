package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A killed private Redis comes back with the writes that it had acknowledged and synced. A frozen
// one keeps its connections, sends nothing, and answers when it is thawed.
func TestPrivateRedisKillStartStopCont(t *testing.T) {
	s := Private(t, KindRedis)
	conn := dial(t, s.Addr)
	ask(t, conn, "CONFIG SET appendfsync always", "+OK")
	ask(t, conn, "SET k v", "+OK")

	s.Kill(1)
	_, err := conn.Read(make([]byte, 1))
	assert.Error(t, err, "the connection outlived the server")
	if late, err := net.Dial("tcp", s.Addr); err == nil {
		_ = late.Close()
		t.Error("the killed server still listens")
	}
	s.Start(1)
	conn = dial(t, s.Addr)
	ask(t, conn, "GET k", "$1")

	conn = dial(t, s.Addr)
	s.Stop(1)
	_, err = fmt.Fprintf(conn, "PING\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "the frozen server answered")
	s.Cont(1)
	ask(t, conn, "", "+PONG")
}

// Every kind of server survives the loss of its first node: the node is gone when killed, and
// ready when started again.
func TestPrivateKindsComeBack(t *testing.T) {
	for _, kind := range []Kind{KindRedisPair, KindRedisCluster, KindRedisTLS, KindRedisSentinel,
		KindValkeyPair, KindValkeyCluster, KindRedisClock, KindPostgresClock,
		KindPostgres, KindMariaDB, KindKafka1, KindKafka3} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := Private(t, kind)
			for _, addr := range s.Addrs {
				dial(t, hostPort(t, addr))
			}
			s.Kill(1)
			if conn, err := net.Dial("tcp", hostPort(t, s.Addr)); err == nil {
				_ = conn.Close()
				t.Error("the killed node still listens")
			}
			s.Start(1)
			dial(t, hostPort(t, s.Addr))
		})
	}
}

// A server that a test started is gone when the test is over.
func TestPrivateServerEndsWithItsTest(t *testing.T) {
	var addr, dir string
	t.Run("owner", func(t *testing.T) {
		s := Private(t, KindRedis)
		addr, dir = s.Addr, s.dir
	})
	if addr == "" {
		t.Skip("NOT RUN: its owner was skipped: use make test")
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("the server outlived its test")
	}
	_, err := os.Stat(dir)
	assert.ErrorIs(t, err, os.ErrNotExist, "its data is still there")
}

// Two tests never get the same ports, even before their servers listen. A Redis Cluster once did
// not start because another package's server had bound one of its ports.
func TestPortsAreReserved(t *testing.T) {
	given := map[int]bool{}
	t.Run("many at once", func(t *testing.T) {
		for range 100 {
			first := reservePorts(t, 12)
			for port := first; port < first+12; port++ {
				require.False(t, given[port], "port %d was given twice", port)
				given[port] = true
			}
		}
	})
	for port := range given {
		require.True(t, allFree(t.Context(), port, 1), "port %d is still held", port)
	}
}

// If a process outside of the tests has taken a port, up tries another block, whichever program
// reports it.
func TestTakenPortIsRecognized(t *testing.T) {
	for _, text := range []string{
		"servers: redis: port 20001 is taken",
		"Warning: Could not create server TCP listening socket 127.0.0.1:21139: bind: Address already in use",
		"java.net.BindException: Address already in use",
	} {
		assert.True(t, portTaken(errors.New(text)), "not recognized: %s", text)
	}
	assert.False(t, portTaken(errors.New("servers: no certificates")),
		"any failure counts as a taken port")
}

// ask sends an inline command (none when empty) and checks how the answer begins.
func ask(t *testing.T, conn net.Conn, command, want string) {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	if command != "" {
		_, err := io.WriteString(conn, command+"\r\n")
		require.NoError(t, err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err, "%s: %q", command, line)
	require.Equal(t, want, strings.TrimSpace(line), "%s: %q", command, line)
}
