package doctor

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
)

// asked are brokers as they answer: one broker, one topic of one partition, one group.
type asked struct {
	sarama.ClusterAdmin
	addr          string
	encrypted     bool
	broker, topic map[string]string // settings
	partition     sarama.PartitionMetadata
	offsets       *sarama.TopicMetadata // of offsetsTopic
	// The ends of the log, the first offset in the window, and what the group has committed; -1 for
	// none.
	oldest, newest, recent, committed int64
}

// wellAsked are brokers of which there is nothing to say, for a window of an hour.
func wellAsked() *asked {
	three := sarama.PartitionMetadata{Leader: 1, Replicas: []int32{1, 2, 3}, Isr: []int32{1, 2, 3}}
	return &asked{
		addr: "kafka.example.com:9093", encrypted: true,
		broker: map[string]string{"offsets.retention.minutes": "60"},
		topic: map[string]string{"retention.ms": "3600000", "min.insync.replicas": "2",
			"unclean.leader.election.enable": "false"},
		partition: three, offsets: &sarama.TopicMetadata{Name: offsetsTopic,
			Partitions: []*sarama.PartitionMetadata{&three}},
		newest: 10, recent: 5, committed: 10,
	}
}

// DescribeCluster implements sarama.ClusterAdmin.
func (a *asked) DescribeCluster() ([]*sarama.Broker, int32, error) {
	return []*sarama.Broker{sarama.NewBroker(a.addr)}, 0, nil
}

// DescribeConfigs implements sarama.ClusterAdmin.
func (a *asked) DescribeConfigs(of []*sarama.ConfigResource,
	_ sarama.DescribeConfigsOptions) (all []*sarama.ConfigResourceResult, _ error) {
	for _, r := range of {
		values := a.topic
		if r.Type == sarama.BrokerResource {
			values = a.broker
		}
		result := &sarama.ConfigResourceResult{Type: r.Type, Name: r.Name}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			result.Configs = append(result.Configs,
				sarama.ConfigEntry{Name: name, Value: values[name]})
		}
		all = append(all, result)
	}
	return all, nil
}

// DescribeTopics implements sarama.ClusterAdmin.
func (a *asked) DescribeTopics(topics []string) (all []*sarama.TopicMetadata, _ error) {
	for _, topic := range topics {
		if topic == offsetsTopic {
			all = append(all, a.offsets)
		} else {
			all = append(all, &sarama.TopicMetadata{Name: topic,
				Partitions: []*sarama.PartitionMetadata{&a.partition}})
		}
	}
	return all, nil
}

// ListConsumerGroupOffsets implements sarama.ClusterAdmin.
func (a *asked) ListConsumerGroupOffsets(_ string,
	of map[string][]int32) (*sarama.OffsetFetchResponse, error) {
	answer := &sarama.OffsetFetchResponse{}
	for topic := range of {
		answer.AddBlock(topic, 0, &sarama.OffsetFetchResponseBlock{Offset: a.committed})
	}
	return answer, nil
}

// ListOffsets implements sarama.ClusterAdmin.
func (a *asked) ListOffsets(of map[string]map[int32]int64,
	_ *sarama.ListOffsetsOptions) (map[string]map[int32]*sarama.OffsetResult, error) {
	all := map[string]map[int32]*sarama.OffsetResult{}
	for topic, partitions := range of {
		offset := a.recent
		switch partitions[0] {
		case sarama.OffsetOldest:
			offset = a.oldest
		case sarama.OffsetNewest:
			offset = a.newest
		}
		all[topic] = map[int32]*sarama.OffsetResult{0: {Offset: offset}}
	}
	return all, nil
}

// lags is how old the first message is that is not read: two windows, unless it is recent.
func (a *asked) lags(string, ...string) (map[string]time.Duration, error) {
	next := max(a.committed, a.oldest)
	switch {
	case next >= a.newest:
		return nil, nil
	case next >= a.recent:
		return map[string]time.Duration{"orders": time.Minute}, nil
	}
	return map[string]time.Duration{"orders": 2 * time.Hour}, nil
}

// found are the findings of a setup, as "severity code".
func (a *asked) found(t *testing.T) (all []string) {
	t.Helper()
	c := cluster{admin: a, where: a.addr, group: "shop", topics: []string{"orders"},
		window: time.Hour, lags: a.lags}
	findings, err := c.look(a.encrypted)
	if err != nil {
		t.Error(err)
	}
	for _, f := range findings {
		all = append(all, f.Severity+" "+f.Code)
		if f.Server != a.addr || f.Detail == "" || f.Why == "" || f.Fix == "" {
			t.Errorf("%+v", f)
		}
	}
	return all
}

// brokerFindings are all that brokers are told of: each in a setup in which it is the only one, and
// silent in the next best, of which there is nothing to say.
var brokerFindings = []struct {
	severity, code string
	bad, well      func(*asked)
}{
	{warning, "plaintext", func(a *asked) {
		a.encrypted = false
	}, func(a *asked) { a.encrypted, a.addr = false, "[::1]:9092" }},
	{
		warning, "offsets_retention", func(a *asked) {
			a.broker["offsets.retention.minutes"] = "59"
		},
		func(a *asked) { a.broker["offsets.retention.minutes"] = "61" },
	},
	{
		warning, "unclean_leader_election", func(a *asked) {
			a.topic["unclean.leader.election.enable"] = "true"
		},
		func(a *asked) { delete(a.topic, "unclean.leader.election.enable") },
	},
	{
		warning, "min_insync_replicas", func(a *asked) { a.topic["min.insync.replicas"] = "1" },
		func(a *asked) { a.topic["min.insync.replicas"] = "3" },
	},
	{
		warning, "replication_factor", func(a *asked) {
			a.partition.Replicas, a.partition.Isr = []int32{1}, []int32{1}
		},
		func(a *asked) { a.partition.Replicas, a.partition.Isr = []int32{1, 2}, []int32{1, 2} },
	},
	{
		warning, "offsets_replication", func(a *asked) {
			a.offsets.Partitions = []*sarama.PartitionMetadata{{Replicas: []int32{1},
				Isr: []int32{1}}}
		},
		func(a *asked) { a.offsets.Err = sarama.ErrUnknownTopicOrPartition }, // not there yet
	},
	{critical, "no_leader", func(a *asked) {
		a.partition.Leader = -1
	}, func(a *asked) { a.partition.Leader = 0 }},
	{
		warning, "under_replicated", func(a *asked) { a.partition.Isr = []int32{1, 2} },
		func(a *asked) { a.partition.Isr = []int32{3, 1, 2} },
	},
	{note, "no_offset", func(a *asked) {
		a.committed, a.recent = -1, 0
	}, func(a *asked) { a.committed, a.recent = 0, 0 }},
	{
		critical, "deleted_unread", func(a *asked) { a.oldest, a.recent, a.committed = 8, 8, 7 },
		func(a *asked) { a.oldest, a.recent, a.committed = 8, 8, 8 },
	},
	{critical, "offset_beyond_end", func(a *asked) {
		a.committed = 11
	}, func(a *asked) { a.committed = 9 }},
	{
		warning, "window_below_retention", func(a *asked) { a.topic["retention.ms"] = "3600001" },
		func(a *asked) { a.topic["retention.ms"] = "3599999" },
	},
	{warning, "lag_beyond_window", func(a *asked) {
		a.committed = 4
	}, func(a *asked) { a.committed = 5 }},
}

func TestBrokerFindings(t *testing.T) {
	if got := wellAsked().found(t); len(got) != 0 {
		t.Errorf("of brokers that are well: %v", got)
	}
	for _, row := range brokerFindings {
		a := wellAsked()
		row.bad(a)
		if got := a.found(t); !slices.Equal(got, []string{row.severity + " " + row.code}) {
			t.Errorf("%s: found %v", row.code, got)
		}
		a = wellAsked()
		row.well(a)
		if got := a.found(t); len(got) != 0 {
			t.Errorf("of what is no %s: %v", row.code, got)
		}
	}
}

// A Sentinel that has no quorum is named, and one that has is not.
func TestSentinelFindings(t *testing.T) {
	for answer, want := range map[string]int{"+OK 3 usable Sentinels": 0,
		"-NOQUORUM 1 usable Sentinels": 1} {
		var listen net.ListenConfig
		l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
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
		if len(found) != want {
			t.Errorf("%s: %+v", answer, found)
		}
		for _, f := range found {
			if f.Code != "sentinel_quorum" || f.Severity != warning || f.Server == "" ||
				!strings.Contains(f.Detail, "NOQUORUM") || f.Why == "" || f.Fix == "" {
				t.Errorf("%+v", f)
			}
		}
	}
}

// Every finding of this package has a row that sees it, and is on the page; every row has a
// finding. Those of Redis and databases are tested where they are made, in redisadapter and
// sqladapter.
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
	if err != nil {
		t.Fatal(err)
	}
	made := codes(t)
	for code, where := range made {
		if !rows[code] {
			t.Errorf("%s: no row sees %s", where, code)
		}
		if !strings.Contains(string(page), "`"+code+"`") {
			t.Errorf("docs/reference/findings.md does not tell of %s", code)
		}
	}
	for code := range rows {
		if made[code] == "" {
			t.Errorf("nothing makes %s", code)
		}
	}
	if len(made) < 20 {
		t.Errorf("%d findings: this test looked in the wrong place", len(made))
	}
}

// codes are the findings that this package makes, and where. One whose code is not to be read there
// is an error.
func codes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all, fset := map[string]string{}, token.NewFileSet()
	note := func(e ast.Expr) {
		where := fset.Position(e.Pos()).String()
		switch e := e.(type) {
		case *ast.BasicLit:
			code, err := strconv.Unquote(e.Value)
			if err != nil {
				t.Fatal(err)
			}
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
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != "finding" // makes one of what it is called with
			case *ast.CallExpr:
				if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "finding" &&
					len(n.Args) > 1 {
					note(n.Args[1])
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "Finding" &&
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
