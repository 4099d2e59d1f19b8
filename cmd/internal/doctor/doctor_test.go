package doctor

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                                 "--redis, --sql, --brokers or --kafka-config is missing",
		"--brokers a:1 --cluster":                          "--redis or --sql is missing",
		"--brokers a --window 1h --topics t":               `--brokers: "a" is not host:port`,
		"--tls --window 1h --topics t":                     "--brokers is missing",
		"--brokers a:1 --topics t":                         "--window is missing",
		"--brokers a:1 --window 1h":                        "--topics or --group is missing",
		"--brokers a:1 --window 1h --topics t,":            "--topics has an empty name",
		"--redis redis://r --window 1h":                    "need --brokers",
		"--kafka-config f --group g":                       "need --brokers",
		"--redis redis://r --table t":                      "need --sql",
		"--redis redis://r --schema s":                     "need --sql",
		"--redis redis://r more":                           `unexpected argument "more"`,
		"--redis redis://r --cluster-reload 1s":            "need --cluster",
		"--redis redis://r --replica-reads":                "need --cluster",
		"--redis redis://r --cluster --cluster-reload -1s": "--cluster-reload is -1s",
	} {
		_, err := parse(strings.Fields(args)...)
		assert.ErrorContains(t, err, want, args)
	}
}

// If no server could be asked, there is no report. Three zeros would look like a healthy server.
func TestReportOfNothing(t *testing.T) {
	var out, errOut bytes.Buffer
	assert.Equal(t, cli.Usage,
		execute(t.Context(), []string{"--redis", "redis://127.0.0.1:1"}, &out,
			&errOut))
	assert.False(t, out.Len() > 0)
	assert.Contains(t, errOut.String(), "--redis: ")
	r := Report{Findings: []Diagnostic{{Severity: warning}}, Error: "--brokers: refused"}
	require.NoError(t, r.write(&cli.Streams{Out: &out}, false))
	assert.True(t, strings.HasSuffix(out.String(),
		"0 critical, 1 warnings, 0 notes so far, and NOT EVERYTHING WAS LOOKED AT\n"))
}

// examine runs the command, and returns its exit code and report.
func examine(t *testing.T, args ...string) (int, Report) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := execute(t.Context(), append(args, "--json"), &out, &errOut)
	var r Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "%v: %v: %v", code, out.String(),
		errOut.String())
	return code, r
}

// names requires that a bad setup gives a finding, with reason and fix, and the right exit code.
func names(t *testing.T, severity, code string, args ...string) {
	t.Helper()
	exit, r := examine(t, args...)
	for _, f := range r.Findings {
		if f.Code != code {
			continue
		}
		assert.Equal(t, severity, f.Severity)
		assert.NotEqual(t, "", f.Detail)
		assert.NotEqual(t, "", f.Why)
		assert.NotEqual(t, "", f.Fix)
		assert.False(t, severity == "critical" && exit != cli.Critical)
		assert.False(t, severity == "warning" && exit != cli.No && exit != cli.Critical)
		return
	}
	t.Errorf("%s is not named: %+v", code, r)
}

// clean requires that nothing worse than a note is found.
func clean(t *testing.T, args ...string) {
	t.Helper()
	exit, r := examine(t, args...)
	assert.Equal(t, cli.Done, exit, r)
}

// Bad setups of Redis, each on its own servers.
func TestRedisSetups(t *testing.T) {
	pair := servertest.Private(t, servertest.KindRedisPair)
	url := "redis://" + pair.Addrs[0]
	client := redis.NewClient(&redis.Options{Addr: pair.Addrs[0]})
	t.Cleanup(func() { _ = client.Close() })
	set := func(t *testing.T, name, value string) {
		t.Helper()
		require.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
	}
	clean(t, "--redis", url)
	t.Run("allkeys-lru", func(t *testing.T) {
		set(t, "maxmemory-policy", "allkeys-lru")
		names(t, "warning", "eviction_policy_unlimited", "--redis", url)
		set(t, "maxmemory", "1gb")
		names(t, "critical", "eviction_policy", "--redis", url)
		set(t, "maxmemory-policy", "noeviction")
		set(t, "maxmemory", "0")
	})
	t.Run("a replica is asked", func(t *testing.T) {
		names(t, "critical", "replica_role", "--redis", "redis://"+pair.Addrs[1])
	})
	t.Run("no persistence, with a replica", func(t *testing.T) {
		set(t, "appendonly", "no")
		names(t, "critical", "no_persistence_with_replicas", "--redis", url)
		set(t, "appendonly", "yes")
	})
	t.Run("plaintext to another machine", func(t *testing.T) {
		names(t, "warning", "plaintext", "--redis", "redis://"+elsewhere(t, pair.Addrs[0]))
	})
	t.Run("old server", func(t *testing.T) {
		names(t, "critical", "version", "--redis", "redis://"+old(t))
	})
}

func TestNoPersistence(t *testing.T) {
	s := servertest.Private(t, servertest.KindRedis)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "no").Err())
	names(t, "warning", "no_persistence", "--redis", "redis://"+s.Addr)
}

// A quorum of Sentinels is lost when two of three are killed.
func TestQuorum(t *testing.T) {
	s := servertest.Private(t, servertest.KindRedisSentinel)
	url := "redis://" + s.Addrs[2] + "?master_name=onceward"
	deadline := time.Now().Add(40 * time.Second)
	// until the Sentinels know each other
	for exit, r := examine(t, "--redis", url); exit != cli.Done; exit, r = examine(t,
		"--redis", url) {
		require.False(t, time.Now().After(deadline), r)
	}
	s.Kill(4)
	s.Kill(5)
	for exit, _ := examine(t, "--redis", url); exit == cli.Done; exit, _ = examine(t,
		"--redis", url) {
		require.False(t, time.Now().After(deadline),
			"two Sentinels of three are gone, and nothing is found")
	}
	names(t, "warning", "sentinel_quorum", "--redis", url)
}

// The settings of a Cluster client, as the flags describe them.
func TestClusterClient(t *testing.T) {
	addrs := servertest.RedisCluster(t)
	cluster := []string{"--redis", "redis://" + addrs[0], "--cluster"}
	names(t, "warning", "cluster_reload_interval", cluster...)
	clean(t, append(cluster, "--cluster-reload", "1s")...)
	code, r := examine(t, cluster[:2:2]...)
	assert.Equal(t, cli.Usage, code,
		"a node that was taken for a server of its own: exit code %d, %+v", code, r)
	assert.Contains(t, r.Error, "add --cluster",
		"a node that was taken for a server of its own: exit code %d, %+v", code, r)
	names(t, "critical", "replica_reads",
		append(cluster, "--cluster-reload", "1s", "--replica-reads")...)
}

// elsewhere returns an address of a server that is not loopback.
func elsewhere(t *testing.T, to string) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		var listen net.ListenConfig
		l, err := listen.Listen(t.Context(), "tcp", net.JoinHostPort(ip.IP.String(), "0"))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		go serve(l, func(conn net.Conn) {
			var d net.Dialer
			server, err := d.DialContext(context.Background(), "tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			go func() { _, _ = io.Copy(server, conn) }()
			_, _ = io.Copy(conn, server)
		})
		return l.Addr().String()
	}
	_, port, err := net.SplitHostPort(to)
	require.NoError(t, err)
	// this machine has only loopback, and 0.0.0.0 leads there without showing that
	return net.JoinHostPort("0.0.0.0", port)
}

// serve hands each connection to a goroutine of its own, until the listener is closed.
func serve(l net.Listener, handle func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			handle(conn)
		}()
	}
}

// old is a server that reports the version of Redis 6.2 and accepts no other command.
func old(t *testing.T) string {
	t.Helper()
	const info = "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n" +
		"# Memory\r\nmaxmemory:1000000000\r\nused_memory:1000000\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\naof_last_write_status:ok\r\n"
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go serve(l, func(conn net.Conn) {
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			var words int
			_, _ = fmt.Sscanf(lines.Text(), "*%d", &words)
			command := ""
			for i := range 2 * words { // each behind its length
				if lines.Scan(); i == 1 {
					command = lines.Text()
				}
			}
			if strings.EqualFold(command, "info") {
				_, _ = fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(info), info)
			} else {
				_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
			}
		}
	})
	return l.Addr().String()
}

// Bad setups of databases: bad DSNs, and tables of this test.
func TestPostgresSetups(t *testing.T) {
	dsn := servertest.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	table := servertest.Prefix(t)
	_, err = db.ExecContext(t.Context(),
		`CREATE UNLOGGED TABLE `+table+` (id uuid PRIMARY KEY)`)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), `DROP TABLE `+table) })
	and := func(parameter string) string {
		if strings.Contains(dsn, "?") {
			return dsn + "&" + parameter
		}
		return dsn + "?" + parameter
	}
	clean(t, "--sql", and("synchronous_commit=on"))
	names(t, "critical", "unlogged", "--sql", dsn, "--table", table)
	names(t, "critical", "no_table", "--sql", dsn, "--table", table+"_not")
	names(t, "warning", "synchronous_commit", "--sql", and("synchronous_commit=off"))
	names(t, "warning", "simple_protocol", "--sql", and("default_query_exec_mode=simple_protocol"))
	names(t, "critical", "read_only", "--sql", and("default_transaction_read_only=on"))
}

func TestMariaDBSetups(t *testing.T) {
	dsn := servertest.MariaDB(t)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	table := servertest.Prefix(t)
	_, err = db.ExecContext(t.Context(),
		`CREATE TABLE `+table+
			` (id VARCHAR(64) COLLATE utf8mb4_general_ci PRIMARY KEY)`)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), `DROP TABLE `+table) })
	names(t, "critical", "collation", "--sql", dsn, "--table", table)
	names(t, "critical", "client_found_rows", "--sql", dsn+"&clientFoundRows=true")
}

func TestSQLiteSetups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(),
		`CREATE TABLE keys (id TEXT COLLATE NOCASE PRIMARY KEY)`)
	require.NoError(t, err)
	const well = "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)"
	clean(t, "--sql", "file:"+file+well)
	names(t, "critical", "collation", "--sql", "file:"+file+well, "--table", "keys")
	names(t, "warning", "busy_timeout", "--sql", "sqlite:"+file)
	names(t, "critical", "journal_mode", "--sql", "file:"+file+well+"&_pragma=journal_mode(OFF)")
}

// A server that cannot be asked is an error, and never a clean report. The error has no password.
func TestUnreachable(t *testing.T) {
	var out, errOut bytes.Buffer
	assert.Equal(t, cli.Usage,
		execute(t.Context(), []string{"--redis", "redis://u:hunter22@127.0.0.1:1"}, &out,
			&errOut), out.String())
	assert.Contains(t, errOut.String(), "--redis: ", out.String())
	assert.Equal(t, cli.Usage,
		execute(t.Context(), []string{"--sql", "postgres://u:hunter22@127.0.0.1:1/d"},
			&out, &errOut), out.String())
	assert.Contains(t, errOut.String(), "--sql: ", out.String())
	assert.NotContains(t, out.String()+errOut.String(), "hunter22", "a password is told: %s%s",
		out.String(), errOut.String())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, cli.Interrupted, execute(ctx, []string{"--redis", "redis://127.0.0.1:1"},
		&out, &errOut))
}

// The text for people has each finding with reason and fix, and a count.
func TestText(t *testing.T) {
	r := Report{Findings: []Diagnostic{
		{"critical", "eviction_policy", "h:1", "seen", "because", "do"},
		{"note", "x", "", "seen", "because", "do"}}}
	var out bytes.Buffer
	require.NoError(t, r.write(&cli.Streams{Out: &out}, false))
	const want = "critical eviction_policy at h:1: seen\n         why: because\n         fix: do\n" +
		"note     x at the client: seen\n         why: because\n         fix: do\n1 critical, 0 warnings, 1 notes\n"
	assert.Equal(t, want, out.String())
}

// The further lines of a finding are indented below its first one. Colors take no width.
func TestNarrowFinding(t *testing.T) {
	var out bytes.Buffer
	f := &Diagnostic{Severity: warning, Code: "redis/eviction", Server: "127.0.0.1:6379",
		Detail: "maxmemory-policy is allkeys-lru", Why: "a full server drops keys, and runs again",
		Fix: "CONFIG SET maxmemory-policy noeviction"}
	require.NoError(t, f.write(&cli.Streams{Out: &out, Width: 50, Color: true}))
	assert.Equal(t, "\x1b[33mwarning\x1b[0m  redis/eviction at 127.0.0.1:6379:\n"+
		"         maxmemory-policy is allkeys-lru\n"+
		"         why: a full server drops keys, and runs\n           again\n"+
		"         fix: CONFIG SET maxmemory-policy\n           noeviction\n", out.String())
}
