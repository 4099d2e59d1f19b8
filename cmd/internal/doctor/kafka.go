package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
)

// The severities, with the names of package preflight.
const (
	critical, warning, note = "critical", "warning", "note"
)

const (
	// offsetsTopic is the topic in which Kafka keeps the offsets of groups.
	offsetsTopic = "__consumer_offsets"
	// offsetsRetention is how long Kafka keeps the offsets of a group without members.
	offsetsRetention = "offsets.retention.minutes"
)

// cluster holds the answers of the brokers. The answer to a question that was not asked is nil.
type cluster struct {
	where     string // the brokers, for diagnostics
	encrypted bool
	group     string
	topics    []string
	window    time.Duration

	brokers                       kadm.BrokerDetails
	brokerSettings, topicSettings map[string]map[string]string // by id, and by name
	details                       kadm.TopicDetails
	committed                     kadm.OffsetResponses
	oldest, newest                kadm.ListedOffsets
	retentions, lags              map[string]time.Duration

	found []Diagnostic
}

// lookAtKafka asks the brokers. With an error, it returns the findings from the answers before the
// error.
func (o *Options) lookAtKafka(ctx context.Context) ([]Diagnostic, error) {
	client, err := o.Kafka.Open(ctx, "onceward-doctor")
	if err != nil {
		return nil, err
	}
	defer client.Close()
	c := cluster{where: strings.Join(o.Kafka.Brokers, ","), encrypted: o.Kafka.TLS.On,
		group: o.Group, topics: o.Topics, window: o.Window}
	err = c.ask(ctx, client)
	return c.look(), server.Unanswered(err, o.Kafka.Brokers...)
}

// ask asks all questions, and stops at the first one that fails.
func (c *cluster) ask(ctx context.Context, client *kgo.Client) error {
	admin := kadm.NewClient(client)
	for _, question := range []func(context.Context, *kadm.Client) error{
		c.askBrokers, c.askGroup, c.askTopics, c.askOffsets,
	} {
		if err := question(ctx, admin); err != nil {
			return err
		}
	}
	var err error
	if c.retentions, err = kafkafranz.Retentions(ctx, client, c.topics...); err == nil &&
		c.group != "" {
		c.lags, err = kafkafranz.Lags(ctx, client, c.group, c.topics...)
	}
	return err
}

func (c *cluster) askBrokers(ctx context.Context, admin *kadm.Client) error {
	metadata, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("--brokers: %w", err)
	}
	c.brokers = metadata.Brokers
	c.brokerSettings, err = settings(admin.DescribeBrokerConfigs(ctx, c.brokers.NodeIDs()...))
	if err != nil {
		return fmt.Errorf(
			"--brokers: their configuration cannot be asked for (DescribeConfigs of the cluster): %w", err)
	}
	return nil
}

// askGroup fills in the topics for which the group has committed offsets, unless --topics names
// some.
func (c *cluster) askGroup(ctx context.Context, admin *kadm.Client) (err error) {
	if c.group == "" {
		return nil
	}
	c.committed, err = admin.FetchOffsets(ctx, c.group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		c.committed, err = kadm.OffsetResponses{}, nil
	}
	if err = errors.Join(err, c.committed.Error()); err != nil {
		return fmt.Errorf("--group %q: %w", c.group, err)
	}
	if len(c.topics) == 0 {
		c.topics = c.committed.Partitions().Topics()
	}
	if len(c.topics) == 0 {
		return fmt.Errorf("--group %q has committed nothing: name its topics with --topics", c.group)
	}
	return nil
}

func (c *cluster) askTopics(ctx context.Context, admin *kadm.Client) (err error) {
	if c.topicSettings, err = settings(admin.DescribeTopicConfigs(ctx, c.topics...)); err == nil {
		c.details, err = admin.ListTopics(ctx, append([]string{offsetsTopic}, c.topics...)...)
	}
	for _, topic := range c.topics {
		if failed := c.details[topic].Err; failed != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", topic, failed))
		}
	}
	if err != nil {
		return fmt.Errorf("--topics: %w", err)
	}
	return nil
}

func (c *cluster) askOffsets(ctx context.Context, admin *kadm.Client) error {
	oldest, err := admin.ListStartOffsets(ctx, c.topics...)
	newest, failed := admin.ListEndOffsets(ctx, c.topics...)
	if err = errors.Join(err, failed, oldest.Error(), newest.Error()); err != nil {
		return fmt.Errorf("--topics: offsets: %w", err)
	}
	c.oldest, c.newest = oldest, newest
	return nil
}

// settings returns the configurations of resources, by name.
func settings(of kadm.ResourceConfigs, err error) (map[string]map[string]string, error) {
	all := make(map[string]map[string]string, len(of))
	for _, r := range of {
		if r.Err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, r.Err)
		}
		all[r.Name] = make(map[string]string, len(r.Configs))
		for _, one := range r.Configs {
			all[r.Name][one.Key] = one.MaybeValue()
		}
	}
	return all, err
}

// look reports what loses or doubles messages.
func (c *cluster) look() []Diagnostic {
	c.atBrokers()
	c.atTopics()
	c.atGroup()
	c.atWindow()
	return c.found
}

func (c *cluster) diagnostic(severity, code, why, fix, detail string, args ...any) {
	c.found = append(c.found,
		Diagnostic{severity, code, c.where, fmt.Sprintf(detail, args...), why, fix})
}

// atBrokers checks the encryption of the connections, and how long brokers keep offsets. It reports
// each problem for one broker only.
func (c *cluster) atBrokers() {
	at := slices.IndexFunc(c.brokers, func(b kadm.BrokerDetail) bool {
		return !server.ThisMachine(b.Host)
	})
	if !c.encrypted && at >= 0 {
		c.diagnostic(warning, "plaintext",
			"whoever is on the way reads messages and can commit offsets",
			"use a listener with TLS: --tls here, and the same in the program",
			"the connection to %s is not encrypted",
			net.JoinHostPort(c.brokers[at].Host, strconv.Itoa(int(c.brokers[at].Port))))
	}
	for _, b := range c.brokers {
		minutes, err := strconv.ParseInt(
			c.brokerSettings[strconv.Itoa(int(b.NodeID))][offsetsRetention], 10, 64)
		if keeps := time.Duration(minutes) * time.Minute; err == nil && keeps < c.window {
			c.diagnostic(warning, "offsets_retention",
				"a group that is stopped for longer begins anew: at the oldest message, of which many have run, or at the newest, which loses those between",
				"raise offsets.retention.minutes above the window and above the longest stop",
				"offsets.retention.minutes of broker %d is %d (%v), and the window %v", b.NodeID,
				minutes, keeps, c.window)
			return
		}
	}
}

// copies describes the replicas of a topic's partitions.
type copies struct {
	fewest   int     // replicas of the partition that has the fewest
	lacking  []int32 // partitions with a replica that is not in sync
	headless []int32 // partitions without a leader
}

func copiesOf(topic kadm.TopicDetail) (r copies) {
	for i, p := range topic.Partitions.Sorted() {
		if i == 0 || len(p.Replicas) < r.fewest {
			r.fewest = len(p.Replicas)
		}
		if len(p.ISR) < len(p.Replicas) {
			r.lacking = append(r.lacking, p.Partition)
		}
		if p.Leader < 0 {
			r.headless = append(r.headless, p.Partition)
		}
	}
	return r
}

// atTopics checks the settings and the replicas of the topics, and the replicas of the topic of
// committed offsets. It reports nothing about the topic of committed offsets if that does not exist
// yet, or is hidden.
func (c *cluster) atTopics() {
	if copiesOf(c.details[offsetsTopic]).fewest == 1 {
		c.diagnostic(warning, "offsets_replication",
			"when its broker is lost, so are the groups' offsets: they begin anew, at the oldest message or at the newest",
			"three replicas: offsets.topic.replication.factor before the first start, kafka-reassign-partitions.sh since",
			"topic %q has one replica", offsetsTopic)
	}
	for _, topic := range c.topics {
		c.atTopic(topic, copiesOf(c.details[topic]))
	}
}

func (c *cluster) atTopic(topic string, r copies) {
	set := c.topicSettings[topic]
	if set["unclean.leader.election.enable"] == "true" {
		c.diagnostic(warning, "unclean_leader_election",
			"a replica that lags may become leader: acknowledged messages are lost, and others get their offsets, which committed offsets then skip",
			"set unclean.leader.election.enable to false",
			"topic %q has unclean.leader.election.enable", topic)
	}
	if set["min.insync.replicas"] == "1" && r.fewest > 1 {
		c.diagnostic(warning, "min_insync_replicas",
			"a leader that is alone acknowledges with acks=all, too, and what it has acknowledged is lost with it",
			"set min.insync.replicas to 2, with three replicas",
			"topic %q has min.insync.replicas 1", topic)
	}
	if r.fewest == 1 {
		c.diagnostic(warning, "replication_factor",
			"when its broker is lost, so are its messages, whatever acks they were sent with",
			"three replicas: kafka-reassign-partitions.sh", "topic %q has one replica", topic)
	}
	if len(r.headless) > 0 {
		c.diagnostic(critical, "no_leader",
			"they cannot be read or written, and offsets in them not committed",
			"start the brokers that are missing",
			"topic %q has no leader for the partitions %v", topic, r.headless)
	}
	if len(r.lacking) > 0 {
		c.diagnostic(warning, "under_replicated",
			"the next broker that is lost may take acknowledged messages with it",
			"look at the brokers that are missing or late",
			"topic %q has replicas out of sync in the partitions %v", topic, r.lacking)
	}
}

// atGroup compares the group's offsets with the beginnings and ends of the log.
func (c *cluster) atGroup() {
	if c.group == "" || c.newest == nil {
		return
	}
	for _, topic := range c.topics {
		var without []int32
		for _, n := range c.details[topic].Partitions.Numbers() {
			at, committed := c.committed.Lookup(topic, n)
			oldest, newest := c.oldest[topic][n].Offset, c.newest[topic][n].Offset
			switch {
			case !committed || at.At < 0:
				without = append(without, n)
			case at.At < oldest:
				c.diagnostic(critical, "deleted_unread",
					"they were deleted before the group had read them, and the group begins where its offset reset says",
					"keep messages for longer than the group may be stopped or late (retention.ms, retention.bytes); send those again that are missing",
					"group %q has committed %d in %s/%d, which begins at %d: %d offsets are gone",
					c.group, at.At, topic, n, oldest, oldest-at.At)
			case at.At > newest:
				c.diagnostic(critical, "offset_beyond_end",
					"the partition was made anew or has lost its end; the group skips what comes, or begins where its offset reset says",
					"reset the offsets of the group (kafka-consumer-groups.sh --reset-offsets)",
					"group %q has committed %d in %s/%d, which ends at %d", c.group, at.At, topic, n,
					newest)
			}
		}
		if len(without) > 0 {
			c.diagnostic(note, "no_offset",
				"the group begins there where its offset reset says: at the newest message it skips what is there before",
				"set auto.offset.reset to earliest (OffsetOldest)",
				"group %q has committed nothing in the partitions %v of topic %q",
				c.group, without, topic)
		}
	}
}

// atWindow asks kafkaadapter which messages may be redelivered after the window.
func (c *cluster) atWindow() {
	for _, e := range kafkaadapter.CheckWindow(c.window, c.retentions, c.lags) {
		keeps := fmt.Sprintf("for %v", e.Retention)
		if e.Retention < 0 {
			keeps = "without limit"
		}
		if e.Retention != 0 {
			c.diagnostic(warning, "window_below_retention",
				"a message that is redelivered after the window (offsets reset, a replay) is taken for new, and its effect runs twice",
				"a window above retention.ms, or retention.ms below the window; or never read from further back than the window",
				"topic %q keeps messages %s, and their records are kept for %v", e.Topic,
				keeps, e.Window)
		}
		if e.Lag > 0 {
			c.diagnostic(warning, "lag_beyond_window",
				"a duplicate that was sent later may have been recorded, and forgotten, before its first is read",
				"a window above the lag, or more consumers",
				"group %q has not read messages of topic %q that are older than the window (%v): the oldest is of %v ago", c.group,
				e.Topic, e.Window, e.Lag.Round(time.Second))
		}
	}
}
