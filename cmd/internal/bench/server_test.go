package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// leftOf are the names that a run has left on any master.
func leftOf(t *testing.T, r *onRedis) (names []string) {
	t.Helper()
	err := r.masters(t.Context(), func(ctx context.Context, node *redis.Client) error {
		all := node.Scan(ctx, 0, r.prefix+"*", 1000).Iterator()
		for all.Next(ctx) {
			names = append(names, all.Val())
		}
		return all.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func onServer(t *testing.T, args ...string) {
	t.Helper()
	r := run(t, append(args, "--for", "400ms", "--dup", "10%", "--workers", "4", "--max-keys",
		"50000")...)
	r.check(t, 0.1)
	o, err := parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	target, err := newRedis(&o, r.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	if names := leftOf(t, target); len(names) > 0 {
		t.Errorf("%d keys are left: %.300q", len(names), names)
	}
	if r.Onceward.CPU != nil && *r.Onceward.CPU <= 0 ||
		r.Onceward.BytesPerKey != nil && *r.Onceward.BytesPerKey <= 0 {
		t.Errorf("%+v", r.Onceward)
	}
	// The claim of a batch is a round trip or two to each of up to three servers, and so is its
	// end.
	if trips := *r.Onceward.Trips * float64(r.Batch); r.Batch > 1 && (trips < 1 || trips > 3*5) {
		t.Errorf("%.2f round trips for a batch", trips)
	}
}

func TestRedisServer(t *testing.T) {
	url := "redis://" + servertest.Redis(t)
	for _, layout := range []string{"full", "compact"} {
		for _, batch := range []string{"1", "32"} {
			t.Run(layout+" "+batch, func(t *testing.T) {
				onServer(t, "--redis", url, "--layout", layout, "--batch", batch)
			})
		}
	}
}

func TestClusterServer(t *testing.T) {
	nodes := servertest.RedisCluster(t)
	for _, layout := range []string{"full", "compact"} {
		for _, batch := range []string{"1", "32"} {
			t.Run(layout+" "+batch, func(t *testing.T) {
				onServer(t, "--redis", "redis://"+nodes[0], "--cluster", "--layout", layout,
					"--batch", batch)
			})
		}
	}
	refuses(t, "add --cluster", "--redis", "redis://"+nodes[0])
}

// refuses wants the command to end before it has written anything.
func refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := execute(t.Context(), append(args, "--for", "200ms"), nil, &out,
		&errOut); code != cli.Usage || !strings.Contains(errOut.String(), want) || out.Len() > 0 {
		t.Errorf("%v: exit code %d, %s", args, code, errOut.String())
	}
}

// A server that evicts, or is nearly full, is refused, and loaded with --force. One that is alone
// tells what a key takes.
func TestGuard(t *testing.T) {
	addr := servertest.Private(t, servertest.KindRedis).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	set := func(name, value string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const url = "redis://"
	set("maxmemory-policy", "allkeys-lru")
	refuses(t, "maxmemory-policy is allkeys-lru", "--redis", url+addr)
	run(t, "--redis", url+addr, "--for", "200ms", "--force")
	set("maxmemory-policy", "noeviction")
	r := run(t, "--redis", url+addr, "--for", "2s", "--batch", "64", "--layout", "full",
		"--max-keys", "40000")
	if b := r.Onceward.BytesPerKey; r.Onceward.New >= leastCounted &&
		(b == nil || *b < 100 || *b > 500) {
		t.Errorf("%+v", r)
	}
	if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are there, %v", n, err)
	}
	// Only now: the buffer that a large value came in is freed some time later.
	if err := client.Set(t.Context(), "other", strings.Repeat("x", 10<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	set("maxmemory", "12mb")
	refuses(t, "% of maxmemory are in use", "--redis", url+addr)
	set("maxmemory", "0")
	for _, command := range []string{"scan", "del"} {
		if err := client.Do(t.Context(), "acl", "setuser", "few", "on", ">hunter22", "~*",
			"+@all", "-"+command).Err(); err != nil {
			t.Fatal(err)
		}
		refuses(t, "SCAN and DEL are needed", "--redis", "redis://few:hunter22@"+addr)
	}
}

func onDatabase(t *testing.T, dsn, query string) {
	t.Helper()
	for _, args := range []string{"", "--batch 32 --result 100", "--rate 200"} {
		t.Run(args, func(t *testing.T) {
			r := run(t, append(strings.Fields(args), "--sql", dsn, "--for", "600ms", "--dup",
				"10%", "--workers", "4")...)
			r.check(t, 0.1)
			tablesLeft(t, dsn, fmt.Sprintf(query, r.Name))
		})
	}
}

func TestPostgresServer(t *testing.T) {
	onDatabase(t, servertest.Postgres(t), `SELECT relname FROM pg_class WHERE relname LIKE '%s%%'`)
}

func TestMariaDBServer(t *testing.T) {
	onDatabase(t, servertest.MariaDB(t),
		`SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%s%%'`)
}

// A run that is interrupted drops its tables.
func TestPostgresInterrupted(t *testing.T) {
	dsn := servertest.Postgres(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o, err := parse([]string{"--sql", dsn, "--for", "1h"}...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSQL(&o, servertest.Prefix(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ended := make(chan error)
	go func() {
		_, err := o.runOn(ctx, s, io.Discard)
		ended <- err
	}()
	until(t, "nothing is written", func() bool {
		var n int
		return s.db.QueryRowContext(t.Context(),
			"SELECT count(*) FROM "+s.name("_bare")).Scan(&n) == nil && n > 10
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	tablesLeft(t, dsn, fmt.Sprintf(`SELECT relname FROM pg_class WHERE relname LIKE '%s%%'`,
		s.table))
}
