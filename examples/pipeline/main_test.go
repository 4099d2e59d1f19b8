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
			if err != nil {
				t.Fatal(err)
			}
			defer closeKafka()
			s, closeShop, err := newShop(ctx, t.TempDir(), seeds, names)
			if err != nil {
				t.Fatal(err)
			}
			defer closeShop()
			const orders = 60
			sent, err := s.send(ctx, orders)
			if err != nil || sent != 2*orders {
				t.Fatalf("sent %d, %v", sent, err)
			}
			if err := s.work(ctx, orders); err != nil {
				t.Fatal(err)
			}
			if ctx.Err() != nil {
				t.Fatal("it did not come to its end")
			}
			// What was told twice, or is still to come, would be a mail more.
			booked, err := s.booked(ctx)
			if of, mails := s.mails.count(); err != nil || booked != orders || mails != orders ||
				of != orders {
				t.Errorf("%d bookings, %d mails of %d orders; %v", booked, mails, of, err)
			}
			var twice int
			if err := s.db.QueryRowContext(ctx,
				`SELECT count(*) FROM (SELECT order_id FROM booking GROUP BY order_id HAVING count(*) > 1)`).Scan(&twice); err != nil || twice != 0 {
				t.Errorf("%d orders are booked twice, %v", twice, err)
			}
		})
	}
}

func TestRun(t *testing.T) {
	if err := run(t.Context(), "", "", 10); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), "", t.TempDir(), 10); err == nil {
		t.Error("it waits for a Kafka that is gone")
	}
}

// TestKill: a process is killed while it mails, and another goes on. Nothing is lost; a mail that
// comes twice was sent by the first before it could be recorded; a third process finds nothing to
// do.
func TestKill(t *testing.T) {
	brokers, closeKafka, err := connect(strings.Join(servertest.Kafka(t), ","))
	if err != nil {
		t.Fatal(err)
	}
	defer closeKafka()
	const orders = 240
	dir := filepath.Join(t.TempDir(), servertest.Prefix(t))
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "PIPELINE_TEST_DIR="+dir,
			"PIPELINE_TEST_BROKERS="+strings.Join(brokers, ","),
			fmt.Sprint("PIPELINE_TEST_ORDERS=", orders))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	mails := func() (all []string, twice map[string]int) {
		text, err := os.ReadFile(filepath.Join(dir, "mails"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
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
			break // and most of what is in flight is not
		}
		if len(ended) > 0 {
			t.Fatalf("it has ended: %v", <-ended)
		}
	}
	_ = first.Process.Kill()
	<-ended
	before, _ := mails()
	recorded := recordedMails(t, dir, brokers, before)
	for range 2 {
		if err := start().Wait(); err != nil {
			t.Fatal(err)
		}
		all, count := mails()
		if len(count) != orders {
			t.Errorf("%d of %d orders have had a mail", len(count), orders)
		}
		for order, n := range count {
			if n > 2 || n == 2 && (recorded[order] || !slices.Contains(before, order)) {
				t.Errorf("%s has had %d mails; on record when the first process was killed: %v",
					order, n, recorded[order])
			}
		}
		t.Logf("killed after %d mails, %d on record; %d mails of %d orders", len(before),
			len(recorded), len(all), len(count))
	}
}

// recorder tells, beside a process that runs, whether a mail is on record. It is asked first when a
// mail is there.
func recorder(t *testing.T, dir string) func(order string) bool {
	t.Helper()
	var d *dedup.Deduper
	return func(order string) bool {
		if d == nil {
			db, err := sqladapter.OpenSQLite("sqlite",
				"file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			store, err := sqlstore.New(db,
				sqlstore.Options{Dialect: sqladapter.SQLite})
			if err != nil {
				t.Fatal(err)
			}
			if d, err = dedup.New(store,
				dedup.Config{Namespace: "mail", Window: time.Hour,
					LeaseTTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		seen, err := d.Seen(t.Context(), "booked:"+order, scope(dir))
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
}

// scope is that of the consumer that sends mails.
func scope(dir string) dedup.Option {
	topic := "bookings-" + filepath.Base(dir)
	return dedup.WithScope(kafkaadapter.ScopeOf("mailing-of-"+topic, topic))
}

// recordedMails are those that a killed process has put on record.
func recordedMails(t *testing.T, dir string, brokers, sent []string) map[string]bool {
	t.Helper()
	base := filepath.Base(dir)
	s, done, err := newShop(t.Context(), dir, brokers,
		topics{orders: "orders-" + base, bookings: "bookings-" + base})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	all := map[string]bool{}
	for _, order := range sent {
		seen, err := s.d.Seen(t.Context(), "booked:"+order, scope(dir))
		if err != nil {
			t.Fatal(err)
		}
		if seen {
			all[order] = true
		}
	}
	if len(all) == 0 {
		t.Error("what was on record is not any more")
	}
	return all
}

// TestMain: with PIPELINE_TEST_DIR this process is the program, for TestKill.
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
