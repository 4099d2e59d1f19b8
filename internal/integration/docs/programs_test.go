package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// program runs, and what it prints is kept.
type program struct {
	*testing.T
	cmd    *exec.Cmd
	ended  chan struct{} // closed when its output has ended
	stderr bytes.Buffer

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed, and replaced, with each line
}

func start(t *testing.T, file string, env ...string) *program {
	t.Helper()
	return startWith(t, file, "", env...)
}

// startWith is start with a standard input.
func startWith(t *testing.T, file, input string, env ...string) *program {
	t.Helper()
	p := &program{T: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), file),
		ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr, p.cmd.Stdin = &p.stderr, strings.NewReader(input)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // fails if the program has ended
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
	}()
	return p
}

// until waits for a line, and returns all lines printed so far.
func (p *program) until(want string) []string {
	p.Helper()
	late := time.After(time.Minute)
	for {
		p.mu.Lock()
		lines, more := slices.Clone(p.lines), p.more
		p.mu.Unlock()
		if slices.Contains(lines, want) {
			return lines
		}
		select {
		case <-more:
		case <-p.ended:
			_ = p.cmd.Wait()
			p.Fatalf("ended without %q: %q\n%s", want, lines, p.stderr.String())
		case <-late:
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
			p.Fatalf("no %q in a minute: %q\n%s", want, lines, p.stderr.String())
		}
	}
}

// end waits until a program ends by itself, and returns the lines that it printed.
func (p *program) end() []string {
	p.Helper()
	<-p.ended
	if err := p.cmd.Wait(); err != nil {
		p.Fatalf("%v\n%s", err, p.stderr.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// kill kills the program, and returns the lines that it had printed.
func (p *program) kill() []string {
	p.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	<-p.ended
	_ = p.cmd.Wait() // killed
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// stop interrupts the program, expects it to end in good order, and returns the lines that it
// printed.
func (p *program) stop() []string {
	p.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.Fatal(err)
	}
	return p.end()
}

// kafka starts a Kafka of one broker in this process, with topics of four partitions.
func kafka(t *testing.T, topics ...string) (address string,
	produce func(topic string, ids ...string)) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return strings.Join(c.ListenAddrs(), ","), func(topic string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			r := &kgo.Record{Topic: topic, Key: []byte(id), Value: []byte(id),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// each fails unless the programs printed each of these lines once, and no other line.
func each(t *testing.T, got []string, want ...string) {
	t.Helper()
	got = slices.Sorted(slices.Values(got))
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("printed %q\nwant    %q", got, want)
	}
}

// TestKafkaGuide: the consumer with sarama ships each order once. The consumer with franz-go,
// which then replaces it, ships only the new order.
func TestKafkaGuide(t *testing.T) {
	files := programs(t, "docs/guides/kafka.md", 2)
	brokers, produce := kafka(t, "orders", "orders.dead")
	env := []string{"KAFKA_BROKERS=" + brokers, "REDIS_ADDR=" + miniredis.RunT(t).Addr()}
	var ids, want []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("order-%d", i))
		want = append(want, "shipped "+ids[i])
	}
	produce("orders", append(slices.Clone(ids), ids...)...)
	sarama := start(t, files[0], env...)
	for _, line := range want {
		sarama.until(line)
	}
	each(t, sarama.stop(), want...)

	produce("orders", append(slices.Clone(ids), "last")...)
	franz := start(t, files[1], env...)
	franz.until("shipped last")
	each(t, franz.stop(), "shipped last")
}

// address is an address of this machine on which nobody listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// answer is an answer of HTTP.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends a request, and repeats it while nobody listens yet.
func post(t *testing.T, url, body string, header http.Header) answer {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header.Clone()
		resp, err := http.DefaultClient.Do(r)
		if errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(late) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return answer{resp.StatusCode, resp.Header, string(text)}
	}
}

// TestWebhooksGuide: an event that arrives three times has one effect; forged and unwanted events
// have none.
func TestWebhooksGuide(t *testing.T) {
	const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	files, listen := programs(t, "docs/guides/webhooks.md", 1), address(t)
	p := start(t, files[0], "LISTEN="+listen, "REDIS_ADDR="+miniredis.RunT(t).Addr(),
		"WEBHOOK_SECRET="+secret)
	send := func(id, body string, want int) {
		t.Helper()
		h, err := webhook.Sign(id, time.Now(), []byte(body), secret)
		if err != nil {
			t.Fatal(err)
		}
		if want == http.StatusUnauthorized {
			body += " "
		}
		if got := post(t, "http://"+listen+"/hooks/billing", body, h); got.status != want {
			t.Errorf("%s: %d %s; want %d", id, got.status, got.body, want)
		}
	}
	const invoice = `{"type":"invoice.paid","number":"7"}`
	send("msg_1", invoice, 200)
	send("msg_1", invoice, 200)
	send("msg_1", invoice, 200)
	send("msg_2", invoice, 401)
	send("msg_3", `{"type":"invoice.drafted"}`, 200)
	send("msg_4", `{"type":"invoice.paid","number":8}`, 200) // never readable, and answered so
	each(t, p.stop(), "invoice.paid of invoice 7")
}

// TestHTTPGuide: twenty simultaneous requests with one key make one payment and one answer.
func TestHTTPGuide(t *testing.T) {
	dsn, db := database(t)
	files, listen := programs(t, "docs/guides/http-api.md", 1), address(t)
	p := start(t, files[0], "LISTEN="+listen, "DATABASE_URL="+dsn)
	pay := func(key, body string) (int, string, bool) {
		got := post(t, "http://"+listen+"/payments", body,
			http.Header{"X-Account": {"alice"}, "Idempotency-Key": {key}})
		return got.status, got.body, got.header.Get("Idempotent-Replayed") == "true"
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			status, text, _ := pay(`"k1"`, `{"amount":100}`)
			// The program lets an account have 16 requests under way.
			assert.Contains(t, []int{201, 409, 429}, status, "at the same time: %s", text)
		})
	}
	all.Wait()
	if status, text, replayed := pay(`"k1"`, `{"amount":100}`); status != 201 || !replayed ||
		!strings.Contains(text, `"amount":100`) {
		t.Errorf("again: %d %s, replayed: %t", status, text, replayed)
	}
	if status, text, _ := pay(`"k1"`, `{"amount":200}`); status != 422 {
		t.Errorf("the key of another payment: %d %s", status, text)
	}
	if n := number(t, db, `SELECT count(*) FROM payment`); n != 1 {
		t.Errorf("%d payments", n)
	}
	each(t, p.stop())
}

// database makes a schema of PostgreSQL for this test alone.
func database(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	u, err := url.Parse(servertest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	name, q := servertest.Prefix(t), u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	db, err = sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()),
			`DROP SCHEMA `+name+` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA `+name); err != nil {
		t.Fatal(err)
	}
	return u.String(), db
}

// account makes the table in which the guides book.
func account(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, ddl := range []string{`CREATE TABLE account (balance bigint NOT NULL)`,
		`INSERT INTO account VALUES (0)`} {
		if _, err := db.ExecContext(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// orders returns the lines that the guides book, with an amount of 1 each.
func orders(n int) (ids []string, input string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("order-%d", i))
		input += ids[i] + " 1\n"
	}
	return ids, input
}

// TestSQLGuide: four programs book the same orders, the first is killed while it does, and each
// order is booked once.
func TestSQLGuide(t *testing.T) {
	dsn, db := database(t)
	account(t, db)
	file := programs(t, "docs/guides/sql.md", 1)[0]
	const n = 1000
	ids, input := orders(n)
	killed := startWith(t, file, input, "DATABASE_URL="+dsn)
	killed.until("booked " + ids[10])
	var others []*program
	for range 3 {
		others = append(others, startWith(t, file, input, "DATABASE_URL="+dsn))
	}
	got := killed.kill()
	for _, p := range others {
		got = append(got, p.end()...)
	}
	// A booking that the killed program committed and did not print is booked anyway.
	if balance := number(t, db, `SELECT balance FROM account`); balance != n || len(got) > n ||
		len(got) < n-1 {
		t.Errorf("balance %d, %d told; want %d", balance, len(got), n)
	}
}

// TestOutboxGuide: two programs book the same orders and publish each booking, one is killed, and
// a consumer gets a message for each booking.
func TestOutboxGuide(t *testing.T) {
	dsn, db := database(t)
	account(t, db)
	brokers, _ := kafka(t, "bookings")
	file := programs(t, "docs/guides/outbox.md", 1)[0]
	const n = 300
	ids, input := orders(n)
	env := []string{"DATABASE_URL=" + dsn, "KAFKA_BROKERS=" + brokers}
	killed := startWith(t, file, input, env...)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ConsumeTopics("bookings"))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	heard := map[string]int{}
	hear := func(until int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for len(heard) < until {
			fetched := consumer.PollFetches(ctx)
			if err := fetched.Err0(); err != nil {
				t.Fatalf("heard of %d of %d: %v\n%s", len(heard), until, err,
					killed.stderr.String())
			}
			fetched.EachRecord(func(r *kgo.Record) {
				for _, h := range r.Headers {
					if h.Key == outbox.DefaultIDHeader {
						heard[string(h.Value)]++
					}
				}
			})
		}
	}
	hear(1)
	killed.kill()
	p := startWith(t, file, input, env...)
	hear(n)
	for _, id := range ids {
		if heard["booked:"+id] == 0 {
			t.Errorf("no message for %s", id)
		}
	}
	p.stop()
	if balance := number(t, db, `SELECT balance FROM account`); balance != n {
		t.Errorf("balance %d; want %d", balance, n)
	}
}

// TestOperatingGuide: an uncertain key that is resolved as on the page ends as the page says.
func TestOperatingGuide(t *testing.T) {
	files, listen, server := programs(t, "docs/guides/operating.md", 1), address(t),
		miniredis.RunT(t)
	command := filepath.Join(t.TempDir(), "onceward")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", command,
		"./cmd/onceward")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), command,
			append(args, "--redis", "redis://"+server.Addr())...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("onceward %v: %v; want %q in\n%s", args, err, want, out)
		}
		t.Logf("onceward %v\n%s", args, out)
	}
	charged := 0
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if charged++; charged <= 2 { // the charge has happened, and its answer is lost
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer gateway.Close()
	p := start(t, files[0], "LISTEN="+listen, "REDIS_ADDR="+server.Addr(), "GATEWAY="+gateway.URL)
	charge := func(id string, want int, text string) {
		t.Helper()
		if got := post(t, "http://"+listen+"/charges/"+id, "", nil); got.status != want ||
			!strings.Contains(got.body, text) {
			t.Errorf("%s: %d %q; want %d with %q", id, got.status, got.body, want, text)
		}
	}
	charge("order-7", 503, "")
	charge("order-7", 409, "uncertain")
	run("1 uncertain", "uncertain")
	run("state         uncertain", "inspect", "order-7", "--namespace", "charges")
	run("is succeeded", "resolve", "order-7", "--namespace", "charges", "--done", "--window",
		"24h", "--yes")
	charge("order-7", 410, "") // done, and its receipt is unknown

	charge("order-8", 503, "")
	run("is released", "resolve", "order-8", "--namespace", "charges", "--released", "--yes")
	// a released key keeps its count: the attempt and the resolution
	charge("order-8", 200, "charged, attempt 3")
	charge("order-8", 200, "charged, attempt 3")
	if charged != 3 {
		t.Errorf("the gateway was asked %d times; want 3", charged)
	}
	each(t, p.stop())
}

// TestNewcomer: the first handler charges once, and the command shows the state of its key.
func TestNewcomer(t *testing.T) {
	file, server := programs(t, "docs/getting-started.md", 1)[0], miniredis.RunT(t)
	run := func(want ...string) {
		t.Helper()
		out, err := func() ([]byte, error) {
			c := exec.CommandContext(t.Context(), file, "evt_1")
			c.Env = append(os.Environ(), "REDIS_ADDR="+server.Addr())
			return c.Output()
		}()
		if err != nil || string(out) != strings.Join(want, "\n")+"\n" {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
	}
	run("charging for evt_1", "R-1")
	run("R-1")
}
