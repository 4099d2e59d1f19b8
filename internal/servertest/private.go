package servertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Kind names what Private starts; scripts/servers.sh starts it.
type Kind string

// The kinds. Nodes count from 1; if nodes differ, the comment says which is which.
const (
	KindRedis        Kind = "redis"         // one, with an append-only file
	KindRedisPair    Kind = "redis-pair"    // 1 primary, 2 replica
	KindRedisCluster Kind = "redis-cluster" // 1 to 3 masters, 4 to 6 replicas, until a failover
	// KindRedisTLS speaks TLS only; File("ca.crt") is the CA that signed its certificate. Its users
	// are onceward, password change-me, as redisadapter/users.acl has it, and default, password
	// admin.
	KindRedisTLS Kind = "redis-tls"
	// KindRedisSentinel has 1 primary, 2 replica, and 3 to 5 Sentinels, which call it "onceward".
	KindRedisSentinel Kind = "redis-sentinel"
	// KindValkeyPair and KindValkeyCluster are the same with Valkey.
	KindValkeyPair    Kind = "valkey-pair"
	KindValkeyCluster Kind = "valkey-cluster"
	// KindRedisClock and KindPostgresClock are a Redis and a PostgreSQL whose wall clock Shift
	// moves.
	KindRedisClock    Kind = "redis-clock"
	KindPostgresClock Kind = "postgres-clock"
	KindPostgres      Kind = "postgres"
	KindMariaDB       Kind = "mariadb"
	KindKafka1        Kind = "kafka1"
	KindKafka3        Kind = "kafka3"
	// KindRabbitMQ has the broker in node 1; node 2 is Erlang's epmd. File("ctl") is a shell script
	// that runs rabbitmqctl on it. Its max_message_size is 2,000,000 bytes.
	KindRabbitMQ Kind = "rabbitmq"
)

// scriptTimeout bounds one call of the script. The slowest one, three Kafka nodes on a busy
// machine, takes well under half of it.
const scriptTimeout = 3 * time.Minute

// Server is a server that belongs to one test. Its methods fail the test on an error, so call them
// from the goroutine that runs the test.
type Server struct {
	// Addr is the address for a client: host:port of the first node, or the URL or DSN of a
	// database.
	Addr string
	// Addrs has one address per node.
	Addrs []string

	t      testing.TB
	script string
	dir    string
}

// Private starts a server of its own for t and waits until it is ready: 50 ms for a Redis, about 1
// s for a database, 2 to 6 s for a Cluster, Sentinels or Kafka. The server stops, and its data is
// removed, when t and all its subtests have ended; subtests may share it. If t has failed, the end
// of every node's log is printed first. Private servers start only where servers are wanted
// (ONCEWARD_SERVERS=1 or ONCEWARD_REQUIRE_SERVERS=1; `make test` sets both). Otherwise t is
// skipped.
func Private(t testing.TB, kind Kind) *Server {
	t.Helper()
	Wanted(t, "a private "+string(kind))
	script, err := findScript()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, script: script}
	s.up(kind)
	return s
}

// Wanted skips the test if no servers are wanted, as [Private] does. what names the thing that
// needs a server.
func Wanted(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(EnvServers) != "1" && !Required() {
		leaveOut(t, fmt.Sprintf("%s needs %s=1", what, EnvServers))
	}
}

// up gives the server a block of ports that no other test has. A process that is not a test may
// take one of them between the check and the server's start; up then tries another block.
func (s *Server) up(kind Kind) {
	s.t.Helper()
	span, err := strconv.Atoi(s.must("ports", string(kind)))
	if err != nil {
		s.t.Fatalf("servers.sh ports %s: %v", kind, err)
	}
	parent := s.tempDir()
	for attempt := 1; ; attempt++ {
		s.dir = filepath.Join(parent, strconv.Itoa(attempt))
		out, err := s.run("private", string(kind), s.dir, strconv.Itoa(reservePorts(s.t, span)))
		if err == nil {
			s.Addrs = strings.Fields(out)
			s.Addr = s.Addrs[0]
			s.t.Cleanup(s.down)
			return
		}
		if attempt == 3 || !portTaken(err) {
			s.t.Fatal(err)
		}
	}
}

// portTaken recognizes the messages about a port that is taken: those of servers.sh before a start,
// and those that Redis, PostgreSQL, MariaDB and Kafka write into their logs, whose end servers.sh
// prints.
func portTaken(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "is taken") || strings.Contains(text, "address already in use")
}

// tempDir is a directory that the databases' system users may enter; they may not enter a directory
// of testing.T.
func (s *Server) tempDir() string {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "onceward-private-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// File reads a file that the kind's comment names.
func (s *Server) File(name string) []byte {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// Kill sends SIGKILL to a node (to all processes of a database) and waits until it is gone.
func (s *Server) Kill(node int) {
	s.t.Helper()
	s.must("signal", s.dir, strconv.Itoa(node), "KILL")
}

// Quit sends SIGQUIT to a node and waits until it is gone: PostgreSQL calls that an immediate
// shutdown.
func (s *Server) Quit(node int) {
	s.t.Helper()
	s.must("signal", s.dir, strconv.Itoa(node), "QUIT")
}

// Stop freezes a node with SIGSTOP: its connections stay open and nothing answers.
func (s *Server) Stop(node int) {
	s.t.Helper()
	s.must("signal", s.dir, strconv.Itoa(node), "STOP")
}

// Cont thaws a frozen node with SIGCONT.
func (s *Server) Cont(node int) {
	s.t.Helper()
	s.must("signal", s.dir, strconv.Itoa(node), "CONT")
}

// Start starts a killed node again, with its data, and waits until it is ready. A Kafka node may
// join again only when its old session has timed out: about 5 s for a single one.
func (s *Server) Start(node int) {
	s.t.Helper()
	s.must("start", s.dir, strconv.Itoa(node))
}

// Shift sets how far the wall clock of a KindRedisClock or KindPostgresClock is ahead of the
// machine's, or behind it if negative. It lasts from now on, even after a Start. Monotonic clocks
// are not changed.
func (s *Server) Shift(by time.Duration) {
	s.t.Helper()
	// do not replace the file: the server has it mapped
	file, err := os.OpenFile(filepath.Join(s.dir, "shift"), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(by)))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) down() {
	if s.t.Failed() {
		s.logs()
	}
	if _, err := s.run("private-down", s.dir); err != nil {
		s.t.Error(err)
	}
}

// logs prints the end of every node's log.
func (s *Server) logs() {
	const enough = 2000
	files, _ := filepath.Glob(filepath.Join(s.dir, "*", "log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		s.t.Logf("%s ends:\n%s", file, text[max(0, len(text)-enough):])
	}
}

func (s *Server) must(args ...string) string {
	s.t.Helper()
	out, err := s.run(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// run does not use the test's context, which is canceled before cleanups run.
func (s *Server) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.script, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("servers.sh %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// findScript walks up from the package under test to the directory that holds go.work.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, "scripts", "servers.sh"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.work above the test: where is scripts/servers.sh?")
		}
		dir = parent
	}
}

// The blocks of ports for private servers lie below the ports of the shared servers and below the
// range from which the system takes ports for connections.
const (
	lowestPort, highestPort = 20000, 26000
	portsOfBlock            = 16
)

// reservePorts reserves span consecutive ports for t until it ends, and returns the first. Tests of
// several packages run at once, so looking for free ports is not enough: two tests may look before
// either binds. The owner of a block listens on its first port, even while its server is down. A
// process that dies releases it.
func reservePorts(t testing.TB, span int) int {
	t.Helper()
	if span >= portsOfBlock {
		t.Fatalf("a server of %d ports does not fit into a block of %d", span, portsOfBlock)
	}
	const blocks = (highestPort - lowestPort) / portsOfBlock
	start := rand.IntN(blocks)
	for i := range blocks {
		first := lowestPort + (start+i)%blocks*portsOfBlock
		owner, err := listenOn(t.Context(), first)
		if err != nil {
			continue
		}
		if !allFree(t.Context(), first+1, span) {
			_ = owner.Close()
			continue
		}
		t.Cleanup(func() { _ = owner.Close() })
		return first + 1
	}
	t.Fatalf("no %d free ports in a row between %d and %d", span, lowestPort, highestPort)
	return 0
}

func allFree(ctx context.Context, first, span int) bool {
	for port := first; port < first+span; port++ {
		l, err := listenOn(ctx, port)
		if err != nil || l.Close() != nil {
			return false
		}
	}
	return true
}

func listenOn(ctx context.Context, port int) (net.Listener, error) {
	var listen net.ListenConfig
	return listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
