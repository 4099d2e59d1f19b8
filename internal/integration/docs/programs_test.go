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
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// program is a running program. Its output is kept.
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
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // an error if it has ended
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

// until waits for a line, and returns what has been printed.
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
			require.Fail(p, "it ended too early", "without %q: %q\n%s", want, lines,
				p.stderr.String())
		case <-late:
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
			require.Fail(p, "a minute has passed", "no %q: %q\n%s", want, lines,
				p.stderr.String())
		}
	}
}

// end waits for a program that ends by itself, and returns what it has printed.
func (p *program) end() []string {
	p.Helper()
	<-p.ended
	require.NoError(p, p.cmd.Wait(), p.stderr.String())
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// kill kills the program, and returns what it had printed.
func (p *program) kill() []string {
	p.Helper()
	require.NoError(p, p.cmd.Process.Kill())
	<-p.ended
	_ = p.cmd.Wait() // killed
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// stop interrupts it, and expects that it ends in good order; it returns what it has printed.
func (p *program) stop() []string {
	p.Helper()
	require.NoError(p, p.cmd.Process.Signal(os.Interrupt))
	return p.end()
}

// kafka is a Kafka of one broker in this process, with topics of four partitions.
func kafka(t *testing.T, topics ...string) (address string,
	produce func(topic string, ids ...string)) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topics...))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return strings.Join(c.ListenAddrs(), ","), func(topic string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			r := &kgo.Record{Topic: topic, Key: []byte(id), Value: []byte(id),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
	}
}

// each fails unless a program has printed each of these lines once, and no other.
func each(t *testing.T, got []string, want ...string) {
	t.Helper()
	assert.ElementsMatch(t, want, got)
}

// TestKafkaGuide: the consumer with sarama handles each order once. The one with franz-go takes
// over, and handles only later orders.
func TestKafkaGuide(t *testing.T) {
	client := func(with string) string {
		return programOf(t, "docs/guides/kafka.md", "client.go", with, strings.NewReplacer())
	}
	brokers, produce := kafka(t, "orders", "orders.dead")
	env := []string{"KAFKA_BROKERS=" + brokers, "REDIS_ADDR=" + miniredis.RunT(t).Addr()}
	produce("orders", "evt_1", "evt_1") // as the page does with the broker's own tool
	ids, want := []string(nil), []string{blockWith(t, "docs/guides/kafka.md", "\nshipped evt_1")}
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("order-%d", i))
		want = append(want, "shipped "+ids[i])
	}
	produce("orders", append(slices.Clone(ids), ids...)...)
	sarama := start(t, client("kafkasarama.Consume("), env...)
	for _, line := range want {
		sarama.until(line)
	}
	each(t, sarama.stop(), want...)

	produce("orders", append(slices.Clone(ids), "last")...)
	franz := start(t, client("kafkafranz.Consume("), env...)
	franz.until("shipped last")
	each(t, franz.stop(), "shipped last")
}

// address returns a free address of this machine.
func address(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// answer is an answer over HTTP.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends a request, and repeats it while nothing listens at the address yet.
func post(t *testing.T, url, body string, header http.Header) answer {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
			strings.NewReader(body))
		require.NoError(t, err)
		r.Header = header.Clone()
		resp, err := http.DefaultClient.Do(r)
		if errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(late) {
			continue
		}
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		require.NoError(t, err)
		return answer{resp.StatusCode, resp.Header, string(text)}
	}
}

// TestWebhooksGuide: an event that comes three times has one effect, and an event that is forged or
// not wanted has none.
func TestWebhooksGuide(t *testing.T) {
	const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	files, listen := programs(t, "docs/guides/webhooks.md", 1), address(t)
	p := start(t, files[0], "LISTEN="+listen, "REDIS_ADDR="+miniredis.RunT(t).Addr(),
		"WEBHOOK_SECRET="+secret)
	send := func(id, body string, want int) {
		t.Helper()
		h, err := webhook.Sign(id, time.Now(), []byte(body), secret)
		require.NoError(t, err)
		if want == http.StatusUnauthorized {
			body += " "
		}
		got := post(t, "http://"+listen+"/hooks/billing", body, h)
		assert.Equal(t, want, got.status, "%s: %s", id, got.body)
	}
	post(t, "http://"+listen+"/hooks/billing", "", nil) // waits until it listens
	out := pageCommands(t, "docs/guides/webhooks.md", "curl ", listen)
	assert.Equal(t, "200\n200\n", out)
	p.until("invoice.paid of invoice 7")
	const invoice = `{"type":"invoice.paid","number":"7"}`
	send("msg_1", invoice, 200)
	send("msg_1", invoice, 200)
	send("msg_2", invoice, 401)
	send("msg_3", `{"type":"invoice.drafted"}`, 200)
	send("msg_4", `{"type":"invoice.paid","number":8}`, 200) // it can never be read
	each(t, p.stop(), "invoice.paid of invoice 7")
}

// TestHTTPGuide: twenty requests with one key, at the same time, cause one payment and get one
// answer.
func TestHTTPGuide(t *testing.T) {
	dsn, db := database(t)
	files, listen := programs(t, "docs/guides/http-api.md", 1), address(t)
	p := start(t, files[0], "LISTEN="+listen, "DATABASE_URL="+dsn)
	pay := func(key, body string) (int, string, bool) {
		got := post(t, "http://"+listen+"/payments", body,
			http.Header{"X-Account": {"alice"}, "Idempotency-Key": {key}})
		return got.status, got.body, got.header.Get("Idempotent-Replayed") == "true"
	}
	pay("", "") // waits until it listens
	wantShown(t, "docs/guides/http-api.md", "HTTP/1.1 201",
		pageCommands(t, "docs/guides/http-api.md", "curl ", listen))
	assert.Equal(t, 1, number(t, db, `SELECT count(*) FROM payment`), "payments of the page")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			status, text, _ := pay(`"k2"`, `{"amount":100}`)
			// The program lets an account have 16 requests under way.
			assert.Contains(t, []int{201, 409, 429}, status, "at the same time: %s", text)
		})
	}
	all.Wait()
	status, text, replayed := pay(`"k2"`, `{"amount":100}`)
	assert.Equal(t, 201, status, "again")
	assert.True(t, replayed)
	assert.Contains(t, text, `"amount":100`)
	status, text, _ = pay(`"k2"`, `{"amount":200}`)
	assert.Equal(t, 422, status, "the key of another payment: %s", text)
	assert.Equal(t, 2, number(t, db, `SELECT count(*) FROM payment`), "payments")
	each(t, p.stop())
}

// database is a schema of PostgreSQL of this test's own.
func database(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	u, err := url.Parse(servertest.Postgres(t))
	require.NoError(t, err)
	name, q := servertest.Prefix(t), u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	db, err = sql.Open("pgx", u.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()),
			`DROP SCHEMA `+name+` CASCADE`)
		assert.NoError(t, err)
	})
	_, err = db.ExecContext(t.Context(), `CREATE SCHEMA `+name)
	require.NoError(t, err)
	return u.String(), db
}

// account makes the table that a guide books in, with the statements that the page gives to psql.
func account(t *testing.T, db *sql.DB, page string) {
	t.Helper()
	statements := statement.FindAllStringSubmatch(blockWith(t, page, "CREATE TABLE account"), -1)
	require.Len(t, statements, 2, page)
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s[1])
		require.NoError(t, err)
	}
}

// statement is what a command of psql executes.
var statement = regexp.MustCompile(`-c '([^']*)'`)

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// orders are the lines that the guides book, of 1 each.
func orders(n int) (ids []string, input string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("order-%d", i))
		input += ids[i] + " 1\n"
	}
	return ids, input
}

// TestSQLGuide: four programs book the same orders, and the first one is killed meanwhile. Each
// order is booked once.
func TestSQLGuide(t *testing.T) {
	dsn, db := database(t)
	const page = "docs/guides/sql.md"
	account(t, db, page)
	file := programs(t, page, 1)[0]
	for _, want := range []string{blockWith(t, page, "booked evt_1") + "\n", ""} {
		assert.Equal(t, want, runPage(t, page, "printf", "go run .", file, "DATABASE_URL="+dsn))
		assert.Equal(t, 150, number(t, db, `SELECT balance FROM account`))
	}
	_, err := db.ExecContext(t.Context(), `UPDATE account SET balance = 0`)
	require.NoError(t, err)
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
	// The killed program may have committed an order that it did not print.
	assert.Equal(t, n, number(t, db, `SELECT balance FROM account`))
	assert.LessOrEqual(t, len(got), n)
	assert.GreaterOrEqual(t, len(got), n-1)
}

// TestOutboxGuide: two programs book the same orders and publish the bookings, and one is killed.
// Each booking is published.
func TestOutboxGuide(t *testing.T) {
	dsn, db := database(t)
	const page = "docs/guides/outbox.md"
	account(t, db, page)
	brokers, _ := kafka(t, "bookings")
	file := programs(t, page, 1)[0]
	const n = 300
	ids, input := orders(n)
	env := []string{"DATABASE_URL=" + dsn, "KAFKA_BROKERS=" + brokers}
	killed := startWith(t, file, input, env...)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ConsumeTopics("bookings"))
	require.NoError(t, err)
	defer consumer.Close()
	heard := map[string]int{}
	hear := func(until int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for len(heard) < until {
			fetched := consumer.PollFetches(ctx)
			require.NoError(t, fetched.Err0(), "heard of %d of %d\n%s", len(heard), until,
				&killed.stderr)
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
		assert.Positive(t, heard["booked:"+id], "published: %s", id)
	}
	p.stop()
	assert.Equal(t, n, number(t, db, `SELECT balance FROM account`))
}

// TestOperatingGuide: the commands of the page end an uncertain key as it says.
func TestOperatingGuide(t *testing.T) {
	files, listen, server := programs(t, "docs/guides/operating.md", 1), address(t),
		miniredis.RunT(t)
	command := filepath.Join(t.TempDir(), "onceward")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", command,
		"./cmd/onceward")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), command,
			append(args, "--redis", "redis://"+server.Addr())...).CombinedOutput()
		require.NoError(t, err, "onceward %v: %s", args, out)
		assert.Contains(t, string(out), want, "onceward %v", args)
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
		got := post(t, "http://"+listen+"/charges/"+id, "", nil)
		assert.Equal(t, want, got.status, id)
		assert.Contains(t, got.body, text, id)
	}
	charge("order-7", 503, "")
	charge("order-7", 409, "uncertain")
	run("1 uncertain", "uncertain")
	run("state         uncertain", "inspect", "order-7", "--namespace", "charges")
	run("is succeeded", "resolve", "order-7", "--namespace", "charges", "--done", "--window",
		"24h", "--yes")
	charge("order-7", 410, "") // done, and its receipt is not known

	charge("order-8", 503, "")
	run("is released", "resolve", "order-8", "--namespace", "charges", "--released", "--yes")
	// a released key keeps its count of attempts: one run, and the resolution
	charge("order-8", 200, "charged, attempt 3")
	charge("order-8", 200, "charged, attempt 3")
	assert.Equal(t, 3, charged, "questions to the gateway")
	each(t, p.stop())
}

// TestNewcomer: the first handler charges once, and charges nothing when it runs again.
func TestNewcomer(t *testing.T) {
	file, server := programs(t, "docs/getting-started.md", 1)[0], miniredis.RunT(t)
	run := func(want ...string) {
		t.Helper()
		out, err := func() ([]byte, error) {
			c := exec.CommandContext(t.Context(), file, "evt_1")
			c.Env = append(os.Environ(), "REDIS_ADDR="+server.Addr())
			return c.Output()
		}()
		require.NoError(t, err)
		assert.Equal(t, strings.Join(want, "\n")+"\n", string(out))
	}
	run("charging for evt_1", "R-1")
	run("R-1")
}
