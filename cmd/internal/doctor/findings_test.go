package doctor

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// answers are the answers of one broker about one topic of one partition and one group.
type answers struct {
	cluster
	broker, topic     map[string]string // settings
	copies, offsets   kadm.PartitionDetail
	oldest, committed int64 // -1: nothing is committed; the log ends at 10
	retention, lag    time.Duration
}

// goodAnswers give no finding for a window of an hour.
func goodAnswers() *answers {
	three := kadm.PartitionDetail{Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}}
	return &answers{
		cluster: cluster{where: "kafka:9093", encrypted: true, group: "shop",
			topics: []string{"orders"}, window: time.Hour,
			brokers: kadm.BrokerDetails{{NodeID: 1, Host: "kafka.example.com", Port: 9093}}},
		broker: map[string]string{"offsets.retention.minutes": "60"},
		topic: map[string]string{"min.insync.replicas": "2",
			"unclean.leader.election.enable": "false"},
		copies: three, offsets: three, committed: 10, retention: time.Hour,
	}
}

// found returns the diagnostics of a setup, as "severity code".
func (a *answers) found(t *testing.T) (all []string) {
	t.Helper()
	c := a.cluster
	c.brokerSettings = map[string]map[string]string{"1": a.broker}
	c.topicSettings = map[string]map[string]string{"orders": a.topic}
	c.details = kadm.TopicDetails{"orders": {Partitions: kadm.PartitionDetails{0: a.copies}},
		offsetsTopic: {Partitions: kadm.PartitionDetails{0: a.offsets}}}
	c.committed.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "orders", At: a.committed}})
	c.oldest = kadm.ListedOffsets{"orders": {0: {Offset: a.oldest}}}
	c.newest = kadm.ListedOffsets{"orders": {0: {Offset: 10}}}
	c.retentions = map[string]time.Duration{"orders": a.retention}
	c.lags = map[string]time.Duration{"orders": a.lag}
	for _, d := range c.look() {
		all = append(all, d.Severity+" "+d.Code)
		assert.Equal(t, "kafka:9093", d.Server)
		assert.NotContains(t, []string{d.Detail, d.Why, d.Fix}, "")
	}
	return all
}

// brokerFindings has all findings of brokers. With bad the finding is the only one. With well,
// which is almost the same, there is none.
var brokerFindings = []struct {
	severity, code string
	bad, well      func(*answers)
}{
	{
		warning, "plaintext", func(a *answers) { a.encrypted = false },
		func(a *answers) { a.encrypted, a.brokers[0].Host = false, "::1" },
	},
	{
		warning, "offsets_retention",
		func(a *answers) { a.broker["offsets.retention.minutes"] = "59" },
		func(a *answers) { a.broker["offsets.retention.minutes"] = "61" },
	},
	{
		warning, "unclean_leader_election",
		func(a *answers) { a.topic["unclean.leader.election.enable"] = "true" },
		func(a *answers) { delete(a.topic, "unclean.leader.election.enable") },
	},
	{
		warning, "min_insync_replicas", func(a *answers) { a.topic["min.insync.replicas"] = "1" },
		func(a *answers) { a.topic["min.insync.replicas"] = "3" },
	},
	{
		warning, "replication_factor",
		func(a *answers) { a.copies.Replicas, a.copies.ISR = []int32{1}, []int32{1} },
		func(a *answers) { a.copies.Replicas, a.copies.ISR = []int32{1, 2}, []int32{1, 2} },
	},
	{
		warning, "offsets_replication", func(a *answers) { a.offsets.Replicas = []int32{1} },
		func(a *answers) { a.offsets.Replicas = nil }, // not there yet
	},
	{
		critical, "no_leader", func(a *answers) { a.copies.Leader = -1 },
		func(a *answers) { a.copies.Leader = 0 },
	},
	{
		warning, "under_replicated", func(a *answers) { a.copies.ISR = []int32{1, 2} },
		func(a *answers) { a.copies.ISR = []int32{3, 1, 2} },
	},
	{
		note, "no_offset", func(a *answers) { a.committed = -1 },
		func(a *answers) { a.committed = 0 },
	},
	{
		critical, "deleted_unread", func(a *answers) { a.oldest, a.committed = 8, 7 },
		func(a *answers) { a.oldest, a.committed = 8, 8 },
	},
	{
		critical, "offset_beyond_end", func(a *answers) { a.committed = 11 },
		func(a *answers) { a.committed = 9 },
	},
	{
		warning, "window_below_retention",
		func(a *answers) { a.retention = time.Hour + time.Millisecond },
		func(a *answers) { a.retention = time.Hour - time.Millisecond },
	},
	{
		warning, "lag_beyond_window", func(a *answers) { a.lag = 2 * time.Hour },
		func(a *answers) { a.lag = time.Minute },
	},
}

func TestBrokerFindings(t *testing.T) {
	assert.Empty(t, goodAnswers().found(t), "of brokers that are well")
	for _, row := range brokerFindings {
		a := goodAnswers()
		row.bad(a)
		assert.Equal(t, []string{row.severity + " " + row.code}, a.found(t))
		a = goodAnswers()
		row.well(a)
		assert.Empty(t, a.found(t), "in a setup without %s", row.code)
	}
}

// A question without an answer gives no finding, above all not that a group has no offset.
func TestUnansweredQuestions(t *testing.T) {
	a := goodAnswers()
	a.encrypted = false
	a.details = kadm.TopicDetails{"orders": {Partitions: kadm.PartitionDetails{0: a.copies}}}
	found := a.look()
	require.Len(t, found, 1)
	assert.Equal(t, "plaintext", found[0].Code)
}

// A Sentinel without a quorum is named, and one with a quorum is not.
func TestSentinelFindings(t *testing.T) {
	for answer, want := range map[string]int{"+OK 3 usable Sentinels": 0,
		"-NOQUORUM 1 usable Sentinels": 1} {
		var listen net.ListenConfig
		l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go serve(l, func(conn net.Conn) {
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				var words int
				_, _ = fmt.Sscanf(lines.Text(), "*%d", &words)
				command := ""
				for i := range 2 * words { // each behind its length
					if lines.Scan(); i == 1 {
						command = lines.Text()
					}
				}
				reply := "-ERR unknown command"
				if strings.EqualFold(command, "sentinel") {
					reply = answer
				}
				_, _ = io.WriteString(conn, reply+"\r\n")
			}
		})
		found := sentinels(t.Context(),
			&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{l.Addr().String()}})
		assert.Len(t, found, want, answer)
		for _, f := range found {
			assert.Equal(t, "sentinel_quorum", f.Code)
			assert.Equal(t, warning, f.Severity)
			assert.NotEqual(t, "", f.Server)
			assert.Contains(t, f.Detail, "NOQUORUM")
			assert.NotEqual(t, "", f.Why)
			assert.NotEqual(t, "", f.Fix)
		}
	}
}

// Every finding of this package has a row that tests it, and is on the page. Every row has a
// finding. redisadapter and sqladapter test the findings of Redis and of databases.
func TestEveryFindingHasARow(t *testing.T) {
	rows := map[string]bool{"sentinel_quorum": true} // TestSentinelFindings
	for _, row := range brokerFindings {
		rows[row.code] = true
	}
	for _, test := range clientFiles {
		for one := range strings.SplitSeq(test.want, ", ") {
			if _, code, ok := strings.Cut(one, " "); ok {
				rows[code] = true
			}
		}
	}
	page, err := os.ReadFile("../../../docs/reference/findings.md")
	require.NoError(t, err)
	made := codes(t)
	for code, where := range made {
		assert.True(t, rows[code], "%s: no row sees %s", where, code)
		assert.Contains(t, string(page), "`"+code+"`",
			"docs/reference/findings.md does not tell of %s", code)
	}
	for code := range rows {
		assert.NotEqual(t, "", made[code], "nothing makes %s", code)
	}
	assert.GreaterOrEqual(t, len(made), 20, "%d findings: this test looked in the wrong place", len(made))
}

// codes returns the codes of the findings that this package makes, and where. It is an error if a
// code cannot be read from the source.
func codes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	all, fset := map[string]string{}, token.NewFileSet()
	note := func(e ast.Expr) {
		where := fset.Position(e.Pos()).String()
		switch e := e.(type) {
		case *ast.BasicLit:
			code, err := strconv.Unquote(e.Value)
			require.NoError(t, err)
			all[code] = where
		case *ast.SelectorExpr: // f.Code, of package preflight
		default:
			t.Errorf("%s: the code of a finding is no word", where)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(fset, file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != "diagnostic" // it gets the code as an argument
			case *ast.CallExpr:
				if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "diagnostic" &&
					len(n.Args) > 1 {
					note(n.Args[1])
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "Diagnostic" &&
					len(n.Elts) > 1 {
					note(n.Elts[1])
				}
			case *ast.KeyValueExpr:
				if name, ok := n.Key.(*ast.Ident); ok && name.Name == "Code" {
					note(n.Value)
				}
			}
			return true
		})
	}
	return all
}
