package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// pgbouncer is a program of one version, and a line of its configuration.
type pgbouncer struct {
	program, version, setting string
	prepares                  bool // keeps prepared statements for its clients
}

// pgbouncers are the program of the machine, Debian's 1.18, and the one that scripts/servers.sh
// install takes from Debian trixie, 1.24. A version that can prepare statements also runs with this
// turned off.
func pgbouncers(t *testing.T) (all []pgbouncer) {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	for _, program := range []string{servertest.Program(t, "pgbouncer"),
		servertest.Program(t, filepath.Join(cache, "onceward", "pgbouncer-trixie", "pgbouncer"))} {
		said, err := exec.CommandContext(t.Context(), program, "--version").Output()
		require.NoError(t, err)
		version := regexp.MustCompile(`\d+\.\d+`).FindString(string(said))
		var minor int
		_, err = fmt.Sscanf(version, "1.%d", &minor)
		require.NoError(t, err)
		if minor < 21 {
			all = append(all, pgbouncer{program: program, version: version})
			continue
		}
		all = append(all, pgbouncer{program, version, "max_prepared_statements = 0", false},
			pgbouncer{program, version, "max_prepared_statements = 200", true})
	}
	return all
}

const (
	// bouncedConnections are those to the server. There are more clients, so transactions of one
	// client are on changing connections.
	bouncedConnections, bouncedClients = 3, 8
	// bouncedEach is how many messages a client has in each way.
	bouncedEach    = 5
	bouncedEffects = bouncedClients * bouncedEach
)

// start runs it in transaction mode in front of the shared PostgreSQL, and returns the URL of the
// database through it.
func (b pgbouncer) start(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(servertest.Postgres(t))
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	lines := []string{"[databases]",
		fmt.Sprintf("* = host=%s port=%s dbname=%s user=%s", u.Hostname(), u.Port(),
			strings.Trim(u.Path, "/"), u.User.Username()),
		"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =",
		"auth_type = any", "pool_mode = transaction",
		fmt.Sprint("default_pool_size = ", bouncedConnections), b.setting}
	if os.Getuid() == 0 {
		lines = append(lines, "user = postgres") // it refuses to run as root
	}
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	var log strings.Builder
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), b.program, file)
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	poll(t, "PgBouncer to listen", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	u.Host = address
	return u.String()
}

// bounced is a shop with an outbox and a store. Migrations and checks go past PgBouncer.
type bounced struct {
	*pgxShop
	sql   *sql.DB
	box   *outbox.Outbox
	store *dedup.Deduper
	calls atomic.Int64 // effects under the store
}

func newBounced(t *testing.T, through, mode string) *bounced {
	t.Helper()
	u, err := url.Parse(through)
	require.NoError(t, err)
	q := u.Query()
	q.Set("default_query_exec_mode", mode)
	u.RawQuery = q.Encode()
	cfg, err := pgxpool.ParseConfig(u.String())
	require.NoError(t, err)
	cfg.MaxConns = bouncedClients
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bounced{pgxShop: &pgxShop{newShop(t, postgres("exec")), pool},
		sql: openDB(t, "pgx", u.String())}
	b.box, err = outbox.New(outbox.Config{Dialect: outbox.Postgres,
		Table: servertest.Prefix(t) + "_box"})
	require.NoError(t, err)
	require.NoError(t, b.box.Migrate(t.Context(), b.db))
	t.Cleanup(func() {
		assert.NoError(t, b.box.MigrateDown(context.Background(), b.db, 0))
	})
	options := sqlstore.Options{Dialect: sqladapter.Postgres,
		Table: servertest.Prefix(t) + "_store"}
	direct, err := sqlstore.New(b.db, options)
	require.NoError(t, err)
	require.NoError(t, direct.Migrate(t.Context()))
	t.Cleanup(func() { assert.NoError(t, direct.Drop(context.Background())) })
	store, err := pgxv5.NewStore(pool, options)
	require.NoError(t, err)
	b.store, err = dedup.New(store, dedup.Config{Namespace: "shop", Window: time.Hour,
		LeaseTTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.store.Close(context.Background())) })
	return b
}

// storeWay is the one whose statements stand alone, outside of a transaction.
const storeWay = "pgx Store"

// ways have the effects of one or two messages each, whose keys begin with name.
func (b *bounced) ways() map[string]func(ctx context.Context, name string) error {
	inserted := func(ctx context.Context, tx execTx, name string) error {
		err := b.effect(ctx, tx, name)
		if err == nil {
			err = b.box.InsertTx(ctx, tx, outbox.Message{ID: name, Topic: "t"})
		}
		return err
	}
	return map[string]func(context.Context, string) error{
		"pgx Do": func(ctx context.Context, name string) error {
			_, err := b.pgxDo(ctx, name, func(tx pgx.Tx) error {
				return b.box.InsertTx(ctx, pgxv5.Wrap(tx), outbox.Message{ID: name, Topic: "t"})
			})
			return err
		},
		"pgx DoBatch": func(ctx context.Context, name string) error {
			_, err := b.pgxDoBatch(ctx, []string{name + " a", name + " b"})
			return err
		},
		"pgx Mark": func(ctx context.Context, name string) error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				mark, err := pgxv5.Mark(ctx, b.marks, tx, name)
				if err != nil || !mark.First() {
					return err
				}
				return inserted(ctx, pgxv5.Wrap(tx), name)
			})
		},
		"sql Do": func(ctx context.Context, name string) error {
			_, err := b.marks.Do(ctx, b.sql, name, func(ctx context.Context, tx *sql.Tx) error {
				return inserted(ctx, tx, name)
			})
			return err
		},
		storeWay: func(ctx context.Context, name string) error {
			_, err := dedup.Do(ctx, b.store, name, func(context.Context) (string, error) {
				b.calls.Add(1)
				return name, nil
			})
			return err
		},
	}
}

// deliverAll has all clients deliver at once, each message twice and in each way. It returns the
// errors by way.
func (b *bounced) deliverAll(t *testing.T, each int, without ...string) (failed map[string]error) {
	t.Helper()
	ways := b.ways()
	for _, name := range without {
		delete(ways, name)
	}
	failed = map[string]error{}
	var mu sync.Mutex
	var clients sync.WaitGroup
	for client := range bouncedClients {
		clients.Go(func() {
			for i := range 2 * each {
				for name, way := range ways {
					err := way(t.Context(), fmt.Sprint(name, " ", client, " ", i/2))
					if err == nil {
						continue
					}
					mu.Lock()
					failed[name] = err
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()
	return failed
}

// publish publishes all messages through PgBouncer, and returns how often each was published.
func (b *bounced) publish(t *testing.T, want int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	published := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	relay, err := outbox.NewRelay(outbox.RelayConfig{Outbox: b.box, DB: b.sql,
		OnPark:  func(_ context.Context, p outbox.Parked) { t.Error(p.ID, p.Reason) },
		OnError: func(err error) { t.Error(err) },
		Publisher: publisherFunc(func(messages []outbox.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range messages {
				published[m.ID]++
			}
			return nil
		})})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	poll(t, "all to be published", func() bool {
		lag, err := b.box.Lag(t.Context(), b.db)
		require.NoError(t, err)
		return lag.Pending == 0
	})
	stop()
	require.NoError(t, <-ended)
	assert.Len(t, published, want)
	return published
}

type publisherFunc func(messages []outbox.Message) []error

func (f publisherFunc) Publish(_ context.Context, messages []outbox.Message) []error {
	return f(messages)
}

// TestPgBouncer: marks, stores and outboxes through PgBouncer in transaction mode, in each query
// mode of pgx, as the table in docs/reference/sql.md has them.
func TestPgBouncer(t *testing.T) {
	for _, b := range pgbouncers(t) {
		t.Run(b.version+" "+b.setting, func(t *testing.T) {
			t.Parallel()
			through := b.start(t)
			for _, mode := range pgxModes {
				t.Run(mode, func(t *testing.T) {
					s := newBounced(t, through, mode)
					switch {
					case mode == "cache_statement" && !b.prepares:
						s.wantNoneTwice(t)
					case mode == "describe_exec":
						s.wantEachOnce(t, storeWay)
					default:
						s.wantEachOnce(t)
						assert.EqualValues(t, bouncedEffects, s.calls.Load())
						for id, n := range s.publish(t, 3*bouncedEffects) {
							assert.Equal(t, 1, n, id)
						}
					}
				})
			}
		})
	}
}

// wantEachOnce checks the effects of all ways except those in without.
func (b *bounced) wantEachOnce(t *testing.T, without ...string) {
	t.Helper()
	require.Empty(t, b.deliverAll(t, bouncedEach, without...))
	effects := b.effects(t)
	assert.Len(t, effects, 5*bouncedEffects, "Do and Mark have one each, DoBatch two")
	for message, n := range effects {
		assert.Equal(t, 1, n, message)
	}
}

// wantNoneTwice checks a mode whose named statements PgBouncer loses: calls fail, and no effect
// happens twice. A release that fails leaves its lease, so the Store's next call may find the id in
// flight.
func (b *bounced) wantNoneTwice(t *testing.T) {
	t.Helper()
	failed := b.deliverAll(t, bouncedEach)
	assert.NotEmpty(t, failed, "the mode works: name it in docs/reference/sql.md")
	for name, err := range failed {
		if name == storeWay && errors.Is(err, dedup.ErrInFlight) {
			continue
		}
		assert.ErrorContains(t, err, "prepared statement", name)
	}
	for message, n := range b.effects(t) {
		assert.Equal(t, 1, n, message)
	}
}
