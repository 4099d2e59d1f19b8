package doctor

import (
	"bytes"
	"context"
	"errors"
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

// kafka is a broker with topics and offsets of this test.
type kafka struct {
	t      *testing.T
	addrs  []string
	client *kgo.Client
	admin  *kadm.Client
}

func newKafka(t *testing.T, addrs []string) *kafka {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &kafka{t, addrs, client, kadm.NewClient(client)}
}

// newFake is a cluster in this process.
func newFake(t *testing.T, brokers int) *kafka {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(brokers))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	return newKafka(t, fake.ListenAddrs())
}

// topic makes a topic with settings "name=value".
func (k *kafka) topic(name string, partitions int32, replicas int16, settings ...string) string {
	k.t.Helper()
	entries := map[string]*string{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		entries[key] = &value
	}
	_, err := k.admin.CreateTopic(k.t.Context(), partitions, replicas, entries, name)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _, _ = k.admin.DeleteTopic(context.Background(), name) })
	return name
}

// send appends n messages to partition 0, as if they had been made some time ago.
func (k *kafka) send(topic string, n int, ago time.Duration) {
	k.t.Helper()
	for range n {
		require.NoError(k.t, k.client.ProduceSync(k.t.Context(), &kgo.Record{Topic: topic,
			Value: []byte("x"), Timestamp: time.Now().Add(-ago)}).FirstErr())
	}
}

// commit commits an offset as a consumer does.
func (k *kafka) commit(group, topic string, offset int64) {
	k.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, offset, -1)
	require.NoError(k.t, k.admin.CommitAllOffsets(k.t.Context(), group, offsets))
}

func (k *kafka) args(more ...string) []string {
	return append([]string{"--brokers", strings.Join(k.addrs, ",")}, more...)
}

// not requires that there is no such finding.
func not(t *testing.T, code string, args ...string) {
	t.Helper()
	exit, r := examine(t, args...)
	assert.NotEqual(t, cli.Usage, exit)
	assert.False(t,
		slices.ContainsFunc(r.Findings, func(f Diagnostic) bool { return f.Code == code }))
}

// Windows, offsets and logs on a broker in this process.
func TestKafkaOffsets(t *testing.T) {
	setups(t, newFake(t, 1), "")
}

// The same findings, and those of settings that only Kafka itself has.
func TestKafkaSetups(t *testing.T) {
	k := newKafka(t, servertest.Kafka(t))
	prefix := servertest.Prefix(t)
	setups(t, k, prefix)
	topic := k.topic(prefix+"-kept", 1, 1, "retention.ms=3600000")
	names(t, "warning", "offsets_retention", k.args("--topics", topic, "--window", "1000h")...)
	not(t, "offsets_retention", k.args("--topics", topic, "--window", "2h")...)
}

// Three brokers, of which a single one may acknowledge.
func TestKafkaInSync(t *testing.T) {
	k := newFake(t, 3)
	topic := k.topic("alone", 1, 3, "min.insync.replicas=1", "retention.ms=3600000")
	names(t, "warning", "min_insync_replicas", k.args("--topics", topic, "--window", "2h")...)
	clean(t, k.args("--topics",
		k.topic("well", 1, 3, "min.insync.replicas=2", "retention.ms=3600000"), "--window",
		"2h")...)
}

func setups(t *testing.T, k *kafka, prefix string) {
	t.Helper()
	day, group := k.topic(prefix+"day", 1, 1, "retention.ms=86400000",
		"unclean.leader.election.enable=true"), prefix+"shop"
	t.Run("window below retention", func(t *testing.T) {
		names(t, "warning", "window_below_retention",
			k.args("--topics", day, "--window", "23h59m")...)
		not(t, "window_below_retention", k.args("--topics", day, "--window", "24h")...)
		compacted := k.topic(prefix+"compacted", 1, 1, "cleanup.policy=compact")
		names(t, "warning", "window_below_retention",
			k.args("--topics", compacted, "--window", "9000h")...)
	})
	t.Run("unclean leader", func(t *testing.T) {
		names(t, "warning", "unclean_leader_election", k.args("--topics", day, "--window",
			"24h")...)
	})
	t.Run("one replica", func(t *testing.T) {
		names(t, "warning", "replication_factor", k.args("--topics", day, "--window", "24h")...)
	})
	t.Run("group", func(t *testing.T) {
		names(t, "note", "no_offset", k.args("--topics", day, "--group", group, "--window",
			"24h")...)
		k.send(day, 4, 2*time.Hour)
		k.commit(group, day, 2)
		names(t, "warning", "lag_beyond_window", k.args("--group", group, "--window", "1h")...)
		not(t, "lag_beyond_window", k.args("--group", group, "--window", "3h")...)
		not(t, "deleted_unread", k.args("--group", group, "--window", "3h")...)
		var before kadm.Offsets
		before.AddOffset(day, 0, 3, -1)
		deleted, err := k.admin.DeleteRecords(t.Context(), before)
		require.NoError(t, errors.Join(err, deleted.Error()))
		names(t, "critical", "deleted_unread", k.args("--group", group, "--window", "24h")...)
		k.commit(group, day, 3)
		not(t, "deleted_unread", k.args("--group", group, "--window", "24h")...)
		k.commit(group, day, 5)
		names(t, "critical", "offset_beyond_end", k.args("--group", group, "--window", "24h")...)
	})
}

// A question that cannot be asked is an error.
func TestKafkaUnanswered(t *testing.T) {
	at := "--brokers " + newFake(t, 1).addrs[0] + " --window 1h "
	for args, want := range map[string]string{
		"--brokers 127.0.0.1:1 --window 1h --topics t": "--brokers: ",
		at + "--topics nosuch":                         "--topics: ",
		at + "--group nobody":                          `--group "nobody" has committed nothing`,
	} {
		var out, errOut bytes.Buffer
		assert.Equal(t, cli.Usage, execute(t.Context(), strings.Fields(args), &out, &errOut),
			"%v: %v", args, out.String())
		assert.Contains(t, errOut.String(), want, "%v: %v", args, out.String())
	}
}

const wellConsumer = "group.id=shop\nenable.auto.commit=false\nauto.offset.reset=earliest\nisolation.level=read_committed\n"

// clientFiles are files of a client. They leave some settings to their defaults.
var clientFiles = []struct {
	name, text string
	want       string // severity and code of each, worst first
	exit       int
}{
	{"well.properties", wellConsumer +
		"session.timeout.ms=45000\npartition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor\nmax.poll.interval.ms=300000\nacks=all\nenable.idempotence=true\n", "", cli.Done},
	{"auto.properties", wellConsumer + "enable.auto.commit = true\n", "critical auto_commit",
		cli.Critical},
	{"default.properties",
		"group.id=shop\nisolation.level=read_committed\nauto.offset.reset=earliest\n",
		"critical auto_commit", cli.Critical},
	{"spring.properties",
		"spring.kafka.consumer.group-id=shop\nspring.kafka.consumer.auto-offset-reset=earliest\nspring.kafka.consumer.isolation-level=READ_COMMITTED\n", "", cli.Done},
	{"spring2.properties", wellConsumer + "spring.kafka.consumer.enable-auto-commit: true\n",
		"critical auto_commit", cli.Critical},
	{"shop.env", "export KAFKA_GROUP_ID=shop\nKAFKA_ENABLE_AUTO_COMMIT='true'\nKAFKA_AUTO_OFFSET_RESET=earliest\nKAFKA_ISOLATION_LEVEL=read_committed\n", "critical auto_commit", cli.Critical},
	{"stored.conf", wellConsumer + "enable.auto.commit=true\nenable.auto.offset.store=false\n",
		"note auto_commit_of_stored", cli.Done},
	{"latest.properties", "# a comment = x\n\n" + wellConsumer + "auto.offset.reset=\\\n  latest\n",
		"warning offset_reset", cli.No},
	{"uncommitted.properties", wellConsumer + "isolation.level=read_uncommitted\n",
		"warning isolation_level", cli.No},
	{"bare.properties", "enable.auto.commit=false\n", "warning offset_reset, note isolation_level",
		cli.No},
	{"short.properties", wellConsumer + "session.timeout.ms=6000\nmax.poll.interval.ms=10000\n",
		"warning session_timeout, note max_poll_interval", cli.No},
	{"eager.properties", wellConsumer + "partition.assignment.strategy=range,roundrobin\n",
		"note eager_rebalance", cli.Done},
	{"acks.properties", "bootstrap.servers=a:1\nacks=1\nenable.idempotence=false\n",
		"warning acks, note idempotence", cli.No},
	{"none.conf", "request.required.acks=0\n", "critical acks", cli.Critical},
	{"sarama.json", `{"Consumer": {"Offsets": {"AutoCommit": {"Enable": true}, "Initial": -1}, "IsolationLevel": 1}, "Producer": {"RequiredAcks": -1}}`,
		"critical auto_commit, warning offset_reset", cli.Critical},
	{"node.json", `{"group.id": "shop", "enable.auto.commit": false, "auto.offset.reset": "smallest", "isolation.level": "read_committed", "partition.assignment.strategy": ["range"]}`,
		"note eager_rebalance", cli.Done},
}

func TestKafkaConfig(t *testing.T) {
	for _, test := range clientFiles {
		file := filepath.Join(t.TempDir(), test.name)
		require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
		exit, r := examine(t, "--kafka-config", file)
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Severity+" "+f.Code)
			assert.Equal(t, file, f.Server, test.name)
			assert.NotEqual(t, "", f.Detail, test.name)
			assert.NotEqual(t, "", f.Why, test.name)
			assert.NotEqual(t, "", f.Fix, test.name)
		}
		assert.Equal(t, test.want, strings.Join(got, ", "), test.name)
		assert.Equal(t, test.exit, exit, test.name)
	}
}

// A file without settings is an error. No error shows a line that cannot be read.
func TestKafkaConfigRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"other.properties": {"color=red\n", "no setting of a consumer or producer"},
		"words.txt":        {"group.id=x\nhunter22\n", "line 2 is not name=value"},
		"broken.json":      {`{"sasl.password": "hunter22`, "is not a JSON object"},
		"app.yaml":         {"spring:\n  kafka:\n", "is YAML"},
		"huge.properties":  {strings.Repeat("#", maxConfig+1), "larger than"},
	} {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
		var out, errOut bytes.Buffer
		code := execute(t.Context(), []string{"--kafka-config", file}, &out, &errOut)
		assert.Equal(t, cli.Usage, code, name)
		assert.Contains(t, errOut.String(), test.want, name)
		assert.NotContains(t, out.String()+errOut.String(), "hunter22", name)
	}
	var out, errOut bytes.Buffer
	assert.Equal(t, cli.Usage,
		execute(t.Context(), []string{"--kafka-config", "/not/there"}, &out,
			&errOut))
	assert.Contains(t, errOut.String(), "--kafka-config: ")
}
