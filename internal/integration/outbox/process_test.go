package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
)

// relayEnv makes this program a relay, and says which.
const relayEnv = "ONCEWARD_TEST_RELAY"

// relayConfig is the configuration of a relay in a process of its own.
type relayConfig struct {
	Driver, DSN, Table string
	Dialect            outbox.Dialect
	Brokers            []string
	// KillBefore and KillAfter are the call of the publisher before or after which the process
	// kills itself; 0 for never.
	KillBefore, KillAfter int64
}

func TestMain(m *testing.M) {
	for env, run := range map[string]func(text string) error{relayEnv: runRelay, natsEnv: runNATS} {
		if text := os.Getenv(env); text != "" {
			if err := run(text); err != nil {
				fmt.Fprintln(os.Stderr, env+":", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// runRelay ends by SIGKILL, or with standard input, which ends with the test.
func runRelay(text string) error {
	var cfg relayConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	db, err := sql.Open(cfg.Driver, cfg.DSN)
	if err != nil {
		return err
	}
	box, err := outbox.New(outbox.Config{Dialect: cfg.Dialect, Table: cfg.Table})
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		return err
	}
	publisher, err := franzpub.New(client)
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Outbox: box, DB: db, Publisher: &mortal{Publisher: publisher, cfg: cfg}, BatchSize: 5,
		PublishTimeout: time.Second, // the lease of a relay that was killed lasts as long
		OnPark: func(_ context.Context, p outbox.Parked) {
			fmt.Fprintln(os.Stderr, "parked:", p.ID, p.Reason)
		},
		OnError: func(err error) { fmt.Fprintln(os.Stderr, err) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	return relay.Run(ctx)
}

// mortal kills its process around a call, as a crash or the OOM killer would.
type mortal struct {
	outbox.Publisher
	cfg   relayConfig
	calls atomic.Int64
}

func (m *mortal) Publish(ctx context.Context, messages []outbox.Message) []error {
	n := m.calls.Add(1)
	if n == m.cfg.KillBefore {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	results := m.Publisher.Publish(ctx, messages)
	if n == m.cfg.KillAfter {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return results
}

// relayProcess starts one. ended is closed when it is gone.
func relayProcess(t *testing.T, cfg relayConfig) (ended <-chan struct{}) {
	t.Helper()
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), relayEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	t.Cleanup(func() { _ = stdin.Close(); <-gone })
	return gone
}
