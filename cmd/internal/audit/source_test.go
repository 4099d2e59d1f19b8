package audit

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// run runs the command, and returns its report if it writes one.
func run(t *testing.T, want int, stdin string, args ...string) (r Report, errors string) {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := cli.Run(ctx, &cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errOut},
		Command(), append(slices.Clone(args), "--json")...)
	require.Equal(t, want, code, errOut.String())
	if out.Len() > 0 {
		require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	}
	return r, errOut.String()
}

// topicOf is a topic with its producer, on a broker for which the test calls others.
type topicOf struct {
	*testing.T
	name, brokers string
	opts          []kgo.Opt
}

// topics calls do with a topic of three partitions on an embedded broker, and on a real one.
func topics(t *testing.T, do func(*topicOf)) {
	t.Run("embedded", func(t *testing.T) {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		do(newTopic(t, cluster.ListenAddrs()))
	})
	t.Run("Apache Kafka", func(t *testing.T) { do(newTopic(t, servertest.Kafka(t))) })
}

func newTopic(t *testing.T, brokers []string) *topicOf {
	s := &topicOf{T: t, name: "audit-" + strings.ReplaceAll(servertest.Prefix(t), ":", ""),
		brokers: strings.Join(brokers, ",")}
	s.opts = []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	client, err := kgo.NewClient(s.opts...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	made, err := kadm.NewClient(client).CreateTopic(t.Context(), 3, 1, nil, s.name)
	require.NoError(t, err)
	require.NoError(t, made.Err)
	return s
}

func record(id string, partition int32, after time.Duration, value string) *kgo.Record {
	r := &kgo.Record{Partition: partition, Timestamp: start.Add(after), Value: []byte(value)}
	if id != "" {
		r.Headers = []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}
	}
	return r
}

// produce writes records; in a transaction where committed says how it ends.
func (s *topicOf) produce(committed *bool, records ...*kgo.Record) {
	opts := append(s.opts, kgo.DefaultProduceTopic(s.name))
	if committed != nil {
		opts = append(opts, kgo.TransactionalID(s.name))
	}
	client, err := kgo.NewClient(opts...)
	require.NoError(s, err)
	defer client.Close()
	if committed != nil {
		require.NoError(s, client.BeginTransaction())
	}
	require.NoError(s, client.ProduceSync(s.Context(), records...).FirstErr())
	if committed != nil {
		require.NoError(s, client.EndTransaction(s.Context(), kgo.TransactionEndTry(*committed)))
	}
}

func TestTopic(t *testing.T) {
	topics(t, func(s *topicOf) {
		s.produce(nil,
			record("a", 0, 0, `{"n":1}`), record("b", 1, time.Second, `{"n":2}`),
			record("a", 0, 0, `{"n":1}`),           // repeated by the client
			record("a", 0, time.Hour, `{"n":1}`),   // again
			record("b", 2, time.Minute, `{"n":2}`), // in another partition
			record("b", 1, time.Minute, `{"n":3}`), // with another payload
			record("", 2, time.Minute, `{"n":4}`))
		no := false
		s.produce(&no, record("a", 0, 0, `{"n":1}`), record("a", 1, 0, `{"n":1}`))
		args := []string{"--brokers", s.brokers, "--topic", s.name}
		r, _ := run(s.T, cli.Done, "", args...)
		assert.EqualValues(s, 7, r.Messages, "none of the aborted ones")
		assert.True(s, r.Complete)
		assert.EqualValues(s, 3, r.Duplicates)
		assert.ElementsMatch(s, []Count{{string(producerRetry), 1, 1.0 / 3},
			{string(sentAgain), 1, 1.0 / 3}, {string(otherPartition), 1, 1.0 / 3}}, r.Causes)
		assert.EqualValues(s, 1, r.Bad.Missing)
		assert.EqualValues(s, 1, r.Bad.Reused)
		assert.Equal(s, (6 * time.Hour).Milliseconds(), r.WindowMS)
		require.NotNil(s, r.Plan)

		part, said := run(s.T, cli.No, "", append(args, "--max", "4")...)
		assert.EqualValues(s, 4, part.Messages)
		assert.False(s, part.Complete)
		assert.Contains(s, said, "--max")
		byValue, _ := run(s.T, cli.Done, "", append(args, "--id", "json:n", "--payload", none)...)
		assert.EqualValues(s, 3, byValue.Duplicates)
		assert.Zero(s, byValue.Bad.Missing+byValue.Bad.Reused)
		late, _ := run(s.T, cli.Done, "", append(args, "--since", "1h")...)
		assert.Zero(s, late.Messages, "their time is longer ago")
	})
}

// The next run continues one that was cut off, and one after which more messages came. No message
// counts twice, and none is left out.
func TestGoesOn(t *testing.T) {
	topics(t, func(s *topicOf) {
		var first, more []*kgo.Record
		for n := range int32(300) {
			r := record(fmt.Sprint(n%100), n%3, time.Duration(n)*time.Second, "x")
			if n < 200 {
				first = append(first, r)
			} else {
				more = append(more, r)
			}
		}
		s.produce(nil, first...)
		state := filepath.Join(s.TempDir(), "state")
		args := []string{"--brokers", s.brokers, "--topic", s.name, "--state", state}
		for _, messages := range []uint64{70, 140} {
			r, _ := run(s.T, cli.No, "", append(args, "--max", "70")...)
			assert.Equal(s, messages, r.Messages)
		}
		run(s.T, cli.Done, "", args...)
		s.produce(nil, more...)
		r, _ := run(s.T, cli.Done, "", args...)
		whole, _ := run(s.T, cli.Done, "", args[:4]...)
		assert.Equal(s, whole, r)
		assert.EqualValues(s, 300, r.Messages)
		assert.EqualValues(s, 200, r.Duplicates)

		_, said := run(s.T, cli.Usage, "", append(args, "--id", "key")...)
		assert.Contains(s, said, "name another file")
		require.NoError(s, os.WriteFile(state, []byte("nonsense"), 0o600))
		_, said = run(s.T, cli.Usage, "", args...)
		assert.Contains(s, said, "is not that of an audit")
	})
}

const lines = `{"request":{"id":"a"},"ts":1790000000,"body":{"n":1, "m":2}}
{"request":{"id":"a"},"ts":1790000600.5,"body":{"n":1,"m":2}}
not JSON
{"request":{"id":7},"ts":"2026-09-21T14:13:20Z","body":null}
{"request":{"id":7},"ts":"2026-09-21T14:13:20Z","body":{"n":2}}
`

func TestFile(t *testing.T) {
	args := []string{"--id", "request.id", "--time", "ts", "--payload", "body"}
	r, _ := run(t, cli.Done, lines, append(args, "--file", "-")...)
	assert.EqualValues(t, 5, r.Messages)
	assert.EqualValues(t, 1, r.Duplicates)
	assert.EqualValues(t, 1, r.Bad.Missing)
	assert.EqualValues(t, 1, r.Bad.Reused)
	assert.EqualValues(t, 600_500, r.Longest)

	file, state := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "state")
	args = append(args, "--file", file, "--state", state)
	require.NoError(t, os.WriteFile(file, []byte(lines[:61]), 0o600)) // the last line is cut
	run(t, cli.Done, "", args...)
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	again, _ := run(t, cli.Done, "", args...)
	assert.EqualValues(t, 1, again.Duplicates)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, said := run(t, cli.Usage, "", args...)
	assert.Contains(t, said, "another one by now")
}

func TestPattern(t *testing.T) {
	log := `10.0.0.1 - - [01/Nov/2026:12:00:00 +0000] "POST /charge" key=k1
10.0.0.1 - - [01/Nov/2026:12:00:03 +0000] "POST /charge" key=k1
10.0.0.1 - - [01/Nov/2026:12:00:04 +0000] "GET /" key=-
`
	r, _ := run(t, cli.Done, log, "--file", "-", "--id", "id", "--time", "at",
		"--pattern", `\[(?P<at>[^]]+)\].* key=(?P<id>\S+)`)
	assert.EqualValues(t, 1, r.Duplicates)
	assert.EqualValues(t, 1, r.Bad.Missing)
	assert.EqualValues(t, 3000, r.Longest)
}

func TestTable(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "events.db")
	for kind, server := range map[string]struct{ driver, dsn, sql string }{
		"SQLite":     {"sqlite", file, "sqlite:" + strings.TrimPrefix(file, "file:")},
		"PostgreSQL": {"pgx", servertest.Postgres(t), servertest.Postgres(t)},
		"MariaDB":    {"mysql", servertest.MariaDB(t), servertest.MariaDB(t)},
	} {
		t.Run(kind, func(t *testing.T) {
			db, err := sql.Open(server.driver, server.dsn)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			table := "audit_" + strings.NewReplacer(":", "", "-", "").Replace(servertest.Prefix(t))
			for _, statement := range []string{
				"CREATE TABLE " + table +
					" (event varchar(50), at timestamp NULL, body varchar(50))",
				"INSERT INTO " + table + ` VALUES ('a', '2026-11-01 12:00:00', 'x'),
					('b', NULL, 'x'), ('a', '2026-11-01 12:10:00', 'x'), ('b', NULL, 'y'),
					(NULL, NULL, NULL)`,
			} {
				_, err = db.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP TABLE "+table) })
			args := []string{"--sql", server.sql, "--table", table, "--id", "event", "--time", "at"}
			r, _ := run(t, cli.Done, "", args...)
			assert.EqualValues(t, 5, r.Messages)
			assert.EqualValues(t, 2, r.Duplicates)
			assert.EqualValues(t, 1, r.Bad.Missing)
			assert.EqualValues(t, 3, r.Bad.Untimed)
			assert.EqualValues(t, 600_000, r.Longest)
			r, _ = run(t, cli.Done, "", append(args, "--payload", "body")...)
			assert.EqualValues(t, 1, r.Duplicates)
			assert.EqualValues(t, 1, r.Bad.Reused)
			_, said := run(t, cli.Usage, "", append(args, "--payload", "nothing")...)
			assert.Contains(t, said, "--table "+table)
		})
	}
}

func TestUsage(t *testing.T) {
	for said, args := range map[string]string{
		"one of --topic, --file and --table":  "--id x",
		"one of --topic, --file and --table ": "--topic a --file b",
		"--max is 0":                          "--topic a --max 0",
		"--ids is 10":                         "--topic a --ids 10",
		"--since is -1s":                      "--topic a --since -1s",
		"--brokers":                           "--topic a",
		"--id is \"header:\"":                 "--topic a --brokers h:1 --id header:",
		"--time is for a file or a table":     "--topic a --brokers h:1 --time x",
		"--since needs --topic":               "--file - --id x --since 1h",
		"--pattern needs --file":              "--table x --id x --pattern x",
		"--state is for a topic or a file":    "--file - --id x --state x",
		"--id is missing":                     "--file -",
		"no group (?P<x>...)":                 "--file - --id x --pattern (a)",
		"--pattern: error":                    "--file - --id x --pattern (",
		"which is not a name":                 "--table a.b.c --id x --sql sqlite:x",
		"--file: open":                        "--file /nowhere/to/be/found --id x",
		"--brokers: ":                         "--topic a --brokers 127.0.0.1:1",
		"--state: open /nowhere/":             "--topic a --brokers h:1 --state /nowhere/to/be/found",
		"--html: open /nowhere/":              "--file - --id x --html /nowhere/to/be/found",
	} {
		_, errors := run(t, cli.Usage, "", strings.Fields(args)...)
		assert.Contains(t, errors, strings.TrimSpace(said), args)
	}
	_, errors := run(t, cli.Usage, `{"id":"a","at":"yesterday"}`,
		"--file", "-", "--id", "id", "--time", "at")
	assert.Contains(t, errors, `line 1: --time at: "yesterday" is not a time`)
}

// The page has the same content as the text. An id that contains HTML is escaped.
func TestPageAndText(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	stdin := strings.Repeat(`{"id":"<script>","at":1790000000,"b":1}`+"\n"+
		`{"id":"<script>","at":1790003600,"b":1}`+"\n", 2) +
		`{"id":"<script>","at":1790003600,"b":2}`
	var out bytes.Buffer
	require.Zero(t, cli.Run(t.Context(),
		&cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &bytes.Buffer{}}, Command(),
		"--file", "-", "--id", "id", "--time", "at", "--payload", "b", "--html", page))
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(html), "&lt;script&gt;")
	assert.NotContains(t, string(html), "<script>")
	for _, both := range []string{"Duplicates", "60.0 %", "within 1h", "sent again later",
		"Redis, compact", "PostgreSQL, deletes"} {
		assert.Contains(t, out.String(), both)
		assert.Contains(t, string(html), both)
	}
}

// A narrow terminal gets the same words in lines that fit. Numbers and the command to copy are not
// broken. On a wide terminal no line is broken.
func TestNarrowTerminal(t *testing.T) {
	r, _ := run(t, cli.Done, strings.Repeat(`{"id":"4711","at":1790000000,"b":1}`+"\n"+
		`{"at":1790003600,"b":1}`+"\n"+`{"id":"4711","at":1790003600,"b":2}`+"\n", 40),
		"--file", "-", "--id", "id", "--time", "at", "--payload", "b")
	r.Causes = append(r.Causes, Count{string(producerRetry), 1_234_567, 0.5})
	r.Bad.Reused, r.Bad.ReusedMessages = 123_456_789, 1_234_567_890
	text := func(width int) string {
		var out bytes.Buffer
		require.NoError(t, r.print(&cli.Streams{Out: &out, Width: width}))
		return out.String()
	}
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("#", "", ":", "", ",", "").
			Replace(text)), " ")
	}
	const command = "onceward plan --rate 0.03333 --window 1m --dup 0.325"
	wide := text(0)
	assert.Contains(t, wide, `
  sent again later                                        39         100.0 %
  repeated by the producer's client (the same timestamp)  1 234 567  50.0 %

`)
	assert.Contains(t, wide, "\n  123 456 789 ids stand for different payloads, in 1 234 567 890 "+
		"messages: as keys they would drop the later ones\n    \"4711\" at byte 60\n\nWindow: 1m, ")
	assert.Contains(t, wide, "\n  "+command+" reckons it with results\n")
	for _, width := range []int{60, 80} {
		narrow := text(width)
		assert.Equal(t, words(wide), words(narrow))
		for line := range strings.Lines(narrow) {
			assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), width, line)
		}
		assert.Contains(t, narrow, "  "+command)
	}
	assert.Contains(t, text(60), `
  repeated by the producer's client (the same timestamp):
    1 234 567, 50.0 %
`)
	assert.Contains(t, text(60), `
  123 456 789 ids stand for different payloads, in
    1 234 567 890 messages: as keys they would drop the
    later ones
    "4711" at byte`)
}

// If no message has an id, text and page do not say that there are no duplicates.
func TestNothingCounted(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	for stdin, want := range map[string]string{
		"": "Duplicates: none were counted: there are no messages",
		"GET /\nGET /\n": "Duplicates: not known: no message has an id there. Set --id, or " +
			"--pattern for a file whose lines are not JSON",
	} {
		var out bytes.Buffer
		require.Zero(t, cli.Run(t.Context(),
			&cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &bytes.Buffer{}}, Command(),
			"--file", "-", "--id", "id", "--html", page))
		assert.Contains(t, out.String(), want)
		assert.NotContains(t, out.String(), "0.00 %")
		html, err := os.ReadFile(page)
		require.NoError(t, err)
		assert.Contains(t, string(html), want)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	code := cli.Run(ctx, &cli.Streams{In: strings.NewReader(lines), Out: &out, Err: &errOut},
		Command(), "--file", "-", "--id", "id")
	assert.Equal(t, cli.Interrupted, code)
	assert.Contains(t, errOut.String(), "interrupted")
}
