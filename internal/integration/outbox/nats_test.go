package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/natspub"
)

// natsEnv makes this program a server of NATS. Its value is the address and the directory of the
// data.
const natsEnv = "ONCEWARD_TEST_NATS"

// runNATS ends by a signal, or with standard input, which ends with the test.
func runNATS(text string) error {
	addr, dir, _ := strings.Cut(text, " ")
	// For an address that is in use, the server itself would report nothing.
	free, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	_ = free.Close()
	at := free.Addr().(*net.TCPAddr)
	s, err := server.NewServer(&server.Options{Host: at.IP.String(), Port: at.Port,
		JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		return errors.New("the server of NATS is not ready")
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// natsServer is a process of its own, so that it can be killed.
type natsServer struct {
	t         *testing.T // the test that started it first and owns it
	text, url string
	process   *os.Process
	ended     chan struct{}
}

// freeAddress is an address of this machine that a server can use again after it was killed. It is
// not 127.0.0.1: there, a connection of another test may take the port in between.
func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.2:0")
	require.NoError(t, err)
	defer func() { _ = free.Close() }()
	return free.Addr().String()
}

func startNATS(t *testing.T) *natsServer {
	t.Helper()
	addr := freeAddress(t)
	s := &natsServer{t: t, text: addr + " " + t.TempDir(), url: "nats://" + addr}
	s.start(t)
	return s
}

func (s *natsServer) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), natsEnv+"="+s.text)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s.process = cmd.Process
	_, err = io.ReadFull(stdout, make([]byte, len("ready")))
	require.NoError(t, err)
	ended := make(chan struct{})
	s.ended = ended
	go func() { _ = cmd.Wait(); close(ended) }()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		<-ended
	})
}

// freeze stops the server, and waits until each of its threads is stopped: a thread on another
// processor may still answer after the signal was sent.
func (s *natsServer) freeze(t *testing.T) {
	t.Helper()
	require.NoError(t, s.process.Signal(syscall.SIGSTOP))
	eventually(t, "the server is frozen", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.process.Pid))
		require.NoError(t, err)
		return !slices.ContainsFunc(threads, func(thread string) bool {
			stat, err := os.ReadFile(thread)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}

// kill returns when the process has ended: until then it may hold its port, and its data.
func (s *natsServer) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.process.Kill())
	<-s.ended
}

func natsClient(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

func natsPublisher(t *testing.T, url string) outbox.Publisher {
	t.Helper()
	p, err := natspub.New(natsClient(t, url))
	require.NoError(t, err)
	return p
}

// stream makes a stream with the subjects of a topic.
func stream(t *testing.T, js jetstream.JetStream, topic string,
	edit ...func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: strings.ReplaceAll(topic, ".", "-"),
		Subjects: []string{topic, topic + ".>"}}
	for _, f := range edit {
		f(&cfg)
	}
	_, err := js.CreateStream(t.Context(), cfg)
	require.NoError(t, err)
}

// stored returns all messages of a stream.
func stored(t *testing.T, js jetstream.JetStream, topic string) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	s, err := js.Stream(t.Context(), topic)
	require.NoError(t, err)
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	for i := range info.State.LastSeq {
		m, err := s.GetMsg(t.Context(), i+1)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

func natsTarget(s *natsServer) *target {
	return &target{
		publisher: func(t *testing.T) outbox.Publisher { return natsPublisher(t, s.url) },
		create:    func(t *testing.T, topic string) { stream(t, natsClient(t, s.url), topic) },
		received: func(t *testing.T, topic string) (all []outbox.Message) {
			for _, m := range stored(t, natsClient(t, s.url), topic) {
				all = append(all, outbox.Message{ID: m.Header.Get(outbox.DefaultIDHeader),
					Topic: m.Subject, Payload: m.Data})
			}
			return all
		},
		kill: s.kill, start: s.start,
	}
}

func TestNATS(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	testTarget(t, natsTarget(s))
	for name, test := range map[string]func(*testing.T, *natsServer){
		"message": testNATSMessage, "duplicates": testNATSDuplicates, "no stream": testNATSNoStream,
		"no acknowledgement": testNATSNoAcknowledgement, "frozen": testNATSFrozen,
		"too large": testNATSTooLarge,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func testNATSMessage(t *testing.T, s *natsServer) {
	js, topic := natsClient(t, s.url), servertest.Prefix(t)
	stream(t, js, topic)
	results := natsPublisher(t, s.url).Publish(t.Context(), []outbox.Message{{
		ID: "id \u00e4", Topic: topic, Key: []byte("k"), Payload: []byte{0, 1, '\n'},
		Headers: []outbox.Header{{Key: "twice", Value: []byte("1")},
			{Key: "twice", Value: []byte("2")}, {Key: "empty"}},
	}})
	require.Equal(t, []error{nil}, results)
	got := stored(t, js, topic)
	require.Len(t, got, 1)
	assert.Equal(t, nats.Header{"twice": {"1", "2"}, "empty": {""},
		jetstream.MsgIDHeader: {topic + " id \u00e4"}}, got[0].Header)
	assert.Equal(t, []byte{0, 1, '\n'}, got[0].Data)
}

// A message that is published again is dropped; one with the same ID on another subject is not.
func testNATSDuplicates(t *testing.T, s *natsServer) {
	js, topic := natsClient(t, s.url), servertest.Prefix(t)
	stream(t, js, topic)
	p := natsPublisher(t, s.url)
	for range 2 {
		for _, subject := range []string{topic + ".a", topic + ".b"} {
			require.Equal(t, []error{nil},
				p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: subject}}))
		}
	}
	var subjects []string
	for _, m := range stored(t, js, topic) {
		subjects = append(subjects, m.Subject)
	}
	assert.Equal(t, []string{topic + ".a", topic + ".b"}, subjects)
}

func testNATSNoStream(t *testing.T, s *natsServer) {
	js, topic := natsClient(t, s.url), servertest.Prefix(t)
	p := natsPublisher(t, s.url)
	messages := []outbox.Message{{ID: "1", Topic: topic}}
	results := p.Publish(t.Context(), messages)
	require.ErrorIs(t, results[0], jetstream.ErrNoStreamResponse)
	require.NotErrorIs(t, results[0], outbox.ErrRejected, "somebody may make the stream")
	stream(t, js, topic)
	require.Equal(t, []error{nil}, p.Publish(t.Context(), messages))
}

func testNATSNoAcknowledgement(t *testing.T, s *natsServer) {
	js, topic := natsClient(t, s.url), servertest.Prefix(t)
	stream(t, js, topic, func(c *jetstream.StreamConfig) { c.NoAck = true })
	silent(t, natsPublisher(t, s.url), topic)
}

// silent publishes to a broker that does not answer: the call ends with its context.
func silent(t *testing.T, p outbox.Publisher, topic string) {
	t.Helper()
	const limit = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	results := p.Publish(ctx, []outbox.Message{{ID: "1", Topic: topic, Key: []byte("k")},
		{ID: "2", Topic: topic, Key: []byte("k")}, {ID: "3", Topic: topic}})
	assert.Less(t, time.Since(began), limit+5*time.Second)
	require.Len(t, results, 3)
	require.ErrorIs(t, results[0], context.DeadlineExceeded)
	require.Error(t, results[1])
	require.ErrorIs(t, results[2], context.DeadlineExceeded)
	for _, err := range results {
		require.NotErrorIs(t, err, outbox.ErrRejected)
	}
}

func testNATSFrozen(t *testing.T, s *natsServer) {
	js, topic := natsClient(t, s.url), servertest.Prefix(t)
	stream(t, js, topic)
	p := natsPublisher(t, s.url)
	s.freeze(t)
	silent(t, p, topic)
	require.NoError(t, s.process.Signal(syscall.SIGCONT))
	require.Equal(t, []error{nil},
		p.Publish(t.Context(), []outbox.Message{{ID: "4", Topic: topic}}))
}

// A stream refuses a message, or the client does.
func testNATSTooLarge(t *testing.T, s *natsServer) {
	js, b := natsClient(t, s.url), natsTarget(s)
	topic := servertest.Prefix(t)
	stream(t, js, topic, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 20_000 })
	testOneTooLarge(t, b, topic, natsPublisher(t, s.url), 30_000)
	topic = servertest.Prefix(t)
	stream(t, js, topic)
	testOneTooLarge(t, b, topic, natsPublisher(t, s.url), 1<<20)
	p := natsPublisher(t, s.url)
	results := p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: topic,
		Payload: make([]byte, 1<<20)}})
	require.ErrorIs(t, results[0], outbox.ErrRejected, "without Check")
}
