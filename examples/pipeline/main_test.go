package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

func TestPipeline(t *testing.T) {
	for name, brokers := range map[string]func(testing.TB) string{
		"embedded": func(testing.TB) string { return "" },
		"kafka":    func(t testing.TB) string { return strings.Join(servertest.Kafka(t), ",") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			names := topics{orders: servertest.Prefix(t) + "-orders",
				bookings: servertest.Prefix(t) + "-bookings"}
			seeds, closeKafka, err := connect(brokers(t))
			require.NoError(t, err)
			defer closeKafka()
			s, closeShop, err := newShop(ctx, t.TempDir(), seeds, names)
			require.NoError(t, err)
			defer closeShop()
			const orders = 60
			sent, err := s.send(ctx, orders)
			require.NoError(t, err)
			require.Equal(t, 2*orders, sent)
			require.NoError(t, s.work(ctx, orders))
			require.NoError(t, ctx.Err(), "it did not come to its end")
			// A second booking, or one that is still to come, would cause another mail.
			booked, err := s.booked(ctx)
			of, mails := s.mails.count()
			require.NoError(t, err)
			assert.Equal(t, int64(orders), booked)
			assert.Equal(t, orders, mails)
			assert.Equal(t, orders, of, "orders that have a mail")
			var twice int
			const query = `SELECT count(*) FROM
				(SELECT order_id FROM booking GROUP BY order_id HAVING count(*) > 1)`
			require.NoError(t, s.db.QueryRowContext(ctx, query).Scan(&twice))
			assert.Zero(t, twice, "orders that are booked twice")
		})
	}
}

func TestRun(t *testing.T) {
	assert.NoError(t, run(t.Context(), "", "", 10))
	assert.Error(t, run(t.Context(), "", t.TempDir(), 10), "it waits for a Kafka that is gone")
}

// TestKill kills a process while it mails, and another process continues. Nothing is lost. A mail
// is sent twice only if the first process sent it before it could record it. A third process finds
// nothing to do.
func TestKill(t *testing.T) {
	brokers, closeKafka, err := connect(strings.Join(servertest.Kafka(t), ","))
	require.NoError(t, err)
	defer closeKafka()
	const orders = 240
	dir := filepath.Join(t.TempDir(), servertest.Prefix(t))
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "PIPELINE_TEST_DIR="+dir,
			"PIPELINE_TEST_BROKERS="+strings.Join(brokers, ","),
			fmt.Sprint("PIPELINE_TEST_ORDERS=", orders))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		return cmd
	}
	mails := func() (all []string, twice map[string]int) {
		text, err := os.ReadFile(filepath.Join(dir, "mails"))
		require.True(t, err == nil || os.IsNotExist(err), err)
		all, twice = strings.Fields(string(text)), map[string]int{}
		for _, order := range all {
			twice[order]++
		}
		return all, twice
	}
	first, ended := start(), make(chan error, 1)
	go func() { ended <- first.Wait() }()
	onRecord := recorder(t, dir)
	for poll := time.NewTicker(10 * time.Millisecond); ; <-poll.C {
		if all, _ := mails(); len(all) > 0 &&
			slices.ContainsFunc(all[:min(len(all), 20)], onRecord) {
			break // most mails in flight are not recorded yet
		}
		require.Empty(t, ended, "it has ended")
	}
	_ = first.Process.Kill()
	<-ended
	before, _ := mails()
	recorded := recordedMails(t, dir, brokers, before)
	for range 2 {
		require.NoError(t, start().Wait())
		all, count := mails()
		assert.Len(t, count, orders, "orders that have had a mail")
		for order, n := range count {
			assert.LessOrEqual(t, n, 2, "mails of %s", order)
			if n == 2 {
				assert.False(t, recorded[order], "%s was on record when it was killed", order)
				assert.Contains(t, before, order)
			}
		}
		t.Logf("killed after %d mails, %d on record; %d mails of %d orders", len(before),
			len(recorded), len(all), len(count))
	}
}

// recorder reports whether a mail is on record while the process runs. Its first call must come
// when there is a mail.
func recorder(t *testing.T, dir string) func(order string) bool {
	t.Helper()
	var d *dedup.Deduper
	return func(order string) bool {
		if d == nil {
			db, err := sqladapter.OpenSQLite("sqlite",
				"file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)")
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			store, err := sqlstore.New(db,
				sqlstore.Options{Dialect: sqladapter.SQLite})
			require.NoError(t, err)
			d, err = dedup.New(store,
				dedup.Config{Namespace: "mail", Window: time.Hour,
					LeaseTTL: time.Minute})
			require.NoError(t, err)
		}
		seen, err := d.Seen(t.Context(), "booked:"+order, scope(dir))
		require.NoError(t, err)
		return seen
	}
}

// scope is that of the consumer that sends mails.
func scope(dir string) dedup.Option {
	topic := "bookings-" + filepath.Base(dir)
	return dedup.WithScope(kafkaadapter.ScopeOf("mailing-of-"+topic, topic))
}

// recordedMails returns the mails that a killed process has recorded.
func recordedMails(t *testing.T, dir string, brokers, sent []string) map[string]bool {
	t.Helper()
	base := filepath.Base(dir)
	s, done, err := newShop(t.Context(), dir, brokers,
		topics{orders: "orders-" + base, bookings: "bookings-" + base})
	require.NoError(t, err)
	defer done()
	all := map[string]bool{}
	for _, order := range sent {
		seen, err := s.d.Seen(t.Context(), "booked:"+order, scope(dir))
		require.NoError(t, err)
		if seen {
			all[order] = true
		}
	}
	assert.NotEmpty(t, all, "what was on record is not any more")
	return all
}

// TestMain: if PIPELINE_TEST_DIR is set, this process is the program of TestKill.
func TestMain(m *testing.M) {
	dir := os.Getenv("PIPELINE_TEST_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	orders, err := strconv.Atoi(os.Getenv("PIPELINE_TEST_ORDERS"))
	if err == nil {
		err = run(context.Background(), os.Getenv("PIPELINE_TEST_BROKERS"), dir, orders)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
