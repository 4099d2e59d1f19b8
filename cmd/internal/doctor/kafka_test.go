package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// kafka is a broker with topics and offsets of the test's own.
type kafka struct {
	t      *testing.T
	addrs  []string
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func newKafka(t *testing.T, addrs []string) *kafka {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	client, err := sarama.NewClient(addrs, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	return &kafka{t, addrs, client, admin}
}

// topic makes one with settings "name=value".
func (k *kafka) topic(name string, partitions int32, replicas int16, settings ...string) string {
	k.t.Helper()
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas,
		ConfigEntries: map[string]*string{}}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		detail.ConfigEntries[key] = &value
	}
	if err := k.admin.CreateTopic(name, detail, false); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = k.admin.DeleteTopic(name) })
	return name
}

// send appends n messages to partition 0, as if they had been made some time ago.
func (k *kafka) send(topic string, n int, ago time.Duration) {
	k.t.Helper()
	producer, err := sarama.NewSyncProducerFromClient(k.client)
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = producer.Close() }()
	for range n {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic,
			Value: sarama.StringEncoder("x"), Timestamp: time.Now().Add(-ago)}); err != nil {
			k.t.Fatal(err)
		}
	}
}

// commit is what a consumer's commit leaves.
func (k *kafka) commit(group, topic string, offset int64) {
	k.t.Helper()
	if err := k.client.RefreshCoordinator(group); err != nil {
		k.t.Fatal(err)
	}
	coordinator, err := k.client.Coordinator(group)
	if err != nil {
		k.t.Fatal(err)
	}
	r := sarama.NewOffsetCommitRequest(k.client.Config(), group)
	r.AddBlock(topic, 0, offset, 0, "")
	answer, err := coordinator.CommitOffset(r)
	if err != nil || answer.Errors[topic][0] != sarama.ErrNoError {
		k.t.Fatal(err, answer)
	}
}

func (k *kafka) args(more ...string) []string {
	return append([]string{"--brokers", strings.Join(k.addrs, ",")}, more...)
}

// not requires that something is not found.
func not(t *testing.T, code string, args ...string) {
	t.Helper()
	if exit, r := examine(t, args...); exit == cli.Usage ||
		slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code }) {
		t.Errorf("exit code %d, %+v", exit, r)
	}
}

// Windows, offsets and logs on a broker in this process.
func TestKafkaOffsets(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	setups(t, newKafka(t, fake.ListenAddrs()), "")
}

// The same, and what only Kafka itself tells of itself.
func TestKafkaSetups(t *testing.T) {
	k := newKafka(t, servertest.Kafka(t))
	prefix := servertest.Prefix(t)
	setups(t, k, prefix)
	topic := k.topic(prefix+"-kept", 1, 1, "retention.ms=3600000")
	names(t, "warning", "offsets_retention", k.args("--topics", topic, "--window", "1000h")...)
	not(t, "offsets_retention", k.args("--topics", topic, "--window", "2h")...)
}

// Three brokers, of which one alone may acknowledge.
func TestKafkaInSync(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	k := newKafka(t, fake.ListenAddrs())
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
		if err := k.admin.DeleteRecords(day, map[int32]int64{0: 3}); err != nil {
			t.Fatal(err)
		}
		names(t, "critical", "deleted_unread", k.args("--group", group, "--window", "24h")...)
		k.commit(group, day, 3)
		not(t, "deleted_unread", k.args("--group", group, "--window", "24h")...)
		k.commit(group, day, 5)
		names(t, "critical", "offset_beyond_end", k.args("--group", group, "--window", "24h")...)
	})
}

// What cannot be asked is an error.
func TestKafkaUnanswered(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	at := "--brokers " + fake.ListenAddrs()[0] + " --window 1h "
	for args, want := range map[string]string{
		"--brokers 127.0.0.1:1 --window 1h --topics t": "--brokers: ",
		at + "--topics nosuch":                         "--topics: ",
		at + "--group nobody":                          `--group "nobody" has committed nothing`,
	} {
		var out, errOut bytes.Buffer
		if code := execute(t.Context(), strings.Fields(args), &out, &errOut); code != cli.Usage ||
			!strings.Contains(errOut.String(), want) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out.String(), errOut.String())
		}
	}
}

const wellConsumer = "group.id=shop\nenable.auto.commit=false\nauto.offset.reset=earliest\nisolation.level=read_committed\n"

// clientFiles are what a client's file sets, and what it leaves to defaults.
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
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		exit, r := examine(t, "--kafka-config", file)
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Severity+" "+f.Code)
			if f.Server != file || f.Detail == "" || f.Why == "" || f.Fix == "" {
				t.Errorf("%s: %+v", test.name, f)
			}
		}
		if strings.Join(got, ", ") != test.want || exit != test.exit {
			t.Errorf("%s: exit code %d, %v; want %d, %s", test.name, exit, got,
				test.exit, test.want)
		}
	}
}

// A file that says nothing is no file without findings; what cannot be read is not shown.
func TestKafkaConfigRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"other.properties": {"color=red\n", "no setting of a consumer or producer"},
		"words.txt":        {"group.id=x\nhunter22\n", "line 2 is not name=value"},
		"broken.json":      {`{"sasl.password": "hunter22`, "is no JSON object"},
		"app.yaml":         {"spring:\n  kafka:\n", "is YAML"},
		"huge.properties":  {strings.Repeat("#", maxConfig+1), "larger than"},
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		code := execute(t.Context(), []string{"--kafka-config", file}, &out, &errOut)
		if code != cli.Usage || !strings.Contains(errOut.String(), test.want) ||
			strings.Contains(out.String()+errOut.String(), "hunter22") {
			t.Errorf("%s: exit code %d, %s%s", name, code, out.String(), errOut.String())
		}
	}
	var out, errOut bytes.Buffer
	if code := execute(t.Context(), []string{"--kafka-config", "/not/there"}, &out,
		&errOut); code != cli.Usage || !strings.Contains(errOut.String(), "--kafka-config: ") {
		t.Errorf("exit code %d, %s", code, errOut.String())
	}
}
