package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// The severities, as redisadapter and sqladapter name them.
const (
	critical, warning, note = "critical", "warning", "note"
)

// offsetsTopic is where Kafka keeps what groups have committed.
const offsetsTopic = "__consumer_offsets"

// cluster is what the brokers are asked through.
type cluster struct {
	admin  sarama.ClusterAdmin
	lags   func(group string, topics ...string) (map[string]time.Duration, error)
	where  string // the brokers, for findings
	group  string
	topics []string
	window time.Duration
}

// lookAtKafka asks the brokers. sarama heeds no context: an interrupted question ends by its own
// timeout.
func (o *Options) lookAtKafka(ctx context.Context) ([]Finding, error) {
	config, err := o.Kafka.Config("onceward-doctor")
	if err != nil {
		return nil, err
	}
	config.Admin.Timeout, config.Admin.Retry.Max = askTime/2, 2
	type answer struct {
		found []Finding
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		client, err := sarama.NewClient(o.Kafka.Brokers, config)
		if err != nil {
			answers <- answer{err: o.notAsked(err)}
			return
		}
		defer func() { _ = client.Close() }()
		admin, err := sarama.NewClusterAdminFromClient(client)
		if err != nil {
			answers <- answer{err: o.notAsked(err)}
			return
		}
		c := cluster{admin: admin, where: strings.Join(o.Kafka.Brokers, ","), group: o.Group,
			topics: o.Topics, window: o.Window}
		c.lags = func(group string, topics ...string) (map[string]time.Duration, error) {
			return kafkasarama.Lags(client, group, topics...)
		}
		found, err := c.look(config.Net.TLS.Enable)
		answers <- answer{found, err}
	}()
	select {
	case <-ctx.Done():
		return nil, o.notAsked(context.Cause(ctx))
	case a := <-answers:
		return a.found, a.err
	}
}

func (o *Options) notAsked(err error) error {
	return fmt.Errorf("--brokers: %w", server.Unanswered(err, o.Kafka.Brokers...))
}

// look asks everything, and stops at the first question that is not answered.
func (c *cluster) look(encrypted bool) (found []Finding, err error) {
	for _, ask := range []func() ([]Finding, error){
		func() ([]Finding, error) { return c.atBrokers(encrypted) },
		c.findTopics, c.atTopics, c.atReplicas, c.atGroup, c.atWindow,
	} {
		more, err := ask()
		found = append(found, more...)
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func (c *cluster) finding(severity, code, why, fix, detail string, args ...any) Finding {
	return Finding{Severity: severity, Code: code, Server: c.where,
		Detail: fmt.Sprintf(detail, args...), Why: why, Fix: fix}
}

// atBrokers looks at the way to the brokers, and at how long they keep offsets.
func (c *cluster) atBrokers(encrypted bool) (found []Finding, err error) {
	brokers, _, err := c.admin.DescribeCluster()
	if err != nil {
		return nil, fmt.Errorf("--brokers: %w", err)
	}
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return cmp.Compare(a.ID(), b.ID()) })
	for _, b := range brokers {
		if !encrypted && elsewhereIs(b.Addr()) {
			found = append(found, c.finding(warning, "plaintext",
				"whoever is on the way reads messages and can commit offsets",
				"use a listener with TLS: --tls here, and the same in the program",
				"the connection to %s is not encrypted", b.Addr()))
			break
		}
	}
	ids := make([]*sarama.ConfigResource, len(brokers))
	for i, b := range brokers {
		ids[i] = &sarama.ConfigResource{Type: sarama.BrokerResource,
			Name: strconv.Itoa(int(b.ID())), ConfigNames: []string{"offsets.retention.minutes"}}
	}
	settings, err := c.settings(ids)
	if err != nil {
		return found, fmt.Errorf(
			"--brokers: their configuration cannot be asked for (DescribeConfigs of the cluster): %w", err)
	}
	for _, b := range brokers {
		minutes, err := strconv.ParseInt(
			settings[strconv.Itoa(int(b.ID()))]["offsets.retention.minutes"], 10, 64)
		if keeps := time.Duration(minutes) * time.Minute; err == nil && keeps < c.window {
			found = append(found, c.finding(warning, "offsets_retention",
				"a group that is stopped for longer begins anew: at the oldest message, of which many have run, or at the newest, which loses those between",
				"raise offsets.retention.minutes above the window and above the longest stop",
				"offsets.retention.minutes of broker %d is %d (%v), and the window %v", b.ID(),
				minutes, keeps, c.window))
			break
		}
	}
	return found, nil
}

// elsewhereIs reports whether an address leads to another machine, as far as can be told.
func elsewhereIs(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// settings are the configurations of resources, by their names.
func (c *cluster) settings(of []*sarama.ConfigResource) (map[string]map[string]string, error) {
	answers, err := c.admin.DescribeConfigs(of, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, err
	}
	all := make(map[string]map[string]string, len(answers))
	for _, a := range answers {
		if a.ErrorCode != sarama.ErrNoError {
			return nil, fmt.Errorf("%s: %w", a.Name, a.ErrorCode)
		}
		all[a.Name] = make(map[string]string, len(a.Configs))
		for _, e := range a.Configs {
			all[a.Name][e.Name] = e.Value
		}
	}
	return all, nil
}

// findTopics takes those in which the group has committed, unless --topics names some.
func (c *cluster) findTopics() ([]Finding, error) {
	if len(c.topics) > 0 {
		return nil, nil
	}
	committed, err := c.admin.ListConsumerGroupOffsets(c.group, nil)
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) {
		return nil, fmt.Errorf("--group %q: %w", c.group, err)
	}
	if err == nil {
		for topic := range committed.Blocks {
			c.topics = append(c.topics, topic)
		}
	}
	slices.Sort(c.topics)
	if len(c.topics) == 0 {
		return nil, fmt.Errorf("--group %q has committed nothing: name its topics with --topics",
			c.group)
	}
	return nil, nil
}

// atTopics looks at what the topics are set to.
func (c *cluster) atTopics() (found []Finding, err error) {
	asked := make([]*sarama.ConfigResource, len(c.topics))
	for i, topic := range c.topics {
		asked[i] = &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
			ConfigNames: []string{"min.insync.replicas", "unclean.leader.election.enable"}}
	}
	settings, err := c.settings(asked)
	if err != nil {
		return nil, fmt.Errorf("--topics: %w", err)
	}
	for _, topic := range c.topics {
		if settings[topic]["unclean.leader.election.enable"] == "true" {
			found = append(found, c.finding(warning, "unclean_leader_election",
				"a replica that lags may become leader: acknowledged messages are lost, and others get their offsets, which committed offsets then skip",
				"set unclean.leader.election.enable to false",
				"topic %q has unclean.leader.election.enable", topic))
		}
	}
	return found, c.inSync(settings, &found)
}

// inSync compares min.insync.replicas with the number of replicas; of a topic with one, atReplicas
// tells.
func (c *cluster) inSync(settings map[string]map[string]string, found *[]Finding) error {
	replicas, err := c.replicas(c.topics)
	if err != nil {
		return err
	}
	for _, topic := range c.topics {
		if settings[topic]["min.insync.replicas"] == "1" && replicas[topic].fewest > 1 {
			*found = append(*found, c.finding(warning, "min_insync_replicas",
				"a leader that is alone acknowledges with acks=all, too, and what it has acknowledged is lost with it",
				"set min.insync.replicas to 2, with three replicas",
				"topic %q has min.insync.replicas 1", topic))
		}
	}
	return nil
}

// copies are the replicas of a topic's partitions.
type copies struct {
	fewest    int     // of any partition
	lacking   []int32 // partitions with a replica that is not in sync
	headless  []int32 // partitions without a leader
	partition []int32
}

func (c *cluster) replicas(topics []string) (map[string]copies, error) {
	answers, err := c.admin.DescribeTopics(topics)
	if err != nil {
		return nil, fmt.Errorf("--topics: %w", err)
	}
	all := make(map[string]copies, len(answers))
	for _, a := range answers {
		if a.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("--topics: %q: %w", a.Name, a.Err)
		}
		var r copies
		for i, p := range a.Partitions {
			if i == 0 || len(p.Replicas) < r.fewest {
				r.fewest = len(p.Replicas)
			}
			if len(p.Isr) < len(p.Replicas) {
				r.lacking = append(r.lacking, p.ID)
			}
			if p.Leader < 0 {
				r.headless = append(r.headless, p.ID)
			}
			r.partition = append(r.partition, p.ID)
		}
		slices.Sort(r.lacking)
		slices.Sort(r.headless)
		slices.Sort(r.partition)
		all[a.Name] = r
	}
	return all, nil
}

// atReplicas looks at copies of the topics and of the committed offsets. A topic of offsets that
// is not there yet, or not to be seen, tells nothing.
func (c *cluster) atReplicas() (found []Finding, err error) {
	all, err := c.replicas(c.topics)
	if err != nil {
		return nil, err
	}
	if offsets, err := c.replicas([]string{offsetsTopic}); err == nil &&
		offsets[offsetsTopic].fewest == 1 {
		found = append(found, c.finding(warning, "offsets_replication",
			"when its broker is lost, so are the groups' offsets: they begin anew, at the oldest message or at the newest",
			"three replicas: offsets.topic.replication.factor before the first start, kafka-reassign-partitions.sh since",
			"topic %q has one replica", offsetsTopic))
	}
	for _, topic := range c.topics {
		r := all[topic]
		if r.fewest == 1 {
			found = append(found, c.finding(warning, "replication_factor",
				"when its broker is lost, so are its messages, whatever acks they were sent with",
				"three replicas: kafka-reassign-partitions.sh", "topic %q has one replica", topic))
		}
		if len(r.headless) > 0 {
			found = append(found, c.finding(critical, "no_leader",
				"they cannot be read or written, and offsets in them not committed",
				"start the brokers that are missing",
				"topic %q has no leader for the partitions %v", topic, r.headless))
		}
		if len(r.lacking) > 0 {
			found = append(found, c.finding(warning, "under_replicated",
				"the next broker that is lost may take acknowledged messages with it",
				"look at the brokers that are missing or late",
				"topic %q has replicas out of sync in the partitions %v", topic, r.lacking))
		}
	}
	return found, nil
}

// atGroup compares the group's offsets with the ends of the log.
func (c *cluster) atGroup() (found []Finding, err error) {
	if c.group == "" {
		return nil, nil
	}
	all, err := c.replicas(c.topics)
	if err != nil {
		return nil, err
	}
	asked := make(map[string][]int32, len(all))
	for topic, r := range all {
		asked[topic] = r.partition
	}
	committed, err := c.admin.ListConsumerGroupOffsets(c.group, asked)
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--group %q: %w", c.group, err)
	}
	oldest, err1 := c.offsets(asked, sarama.OffsetOldest)
	newest, err2 := c.offsets(asked, sarama.OffsetNewest)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for _, topic := range c.topics {
		found = append(found, c.positions(topic, asked[topic], committed, oldest[topic],
			newest[topic])...)
	}
	return found, nil
}

// positions looks at one topic of the group.
func (c *cluster) positions(topic string, partitions []int32, committed *sarama.OffsetFetchResponse,
	oldest, newest map[int32]*sarama.OffsetResult) (found []Finding) {
	var without []int32
	for _, n := range partitions {
		block := committed.GetBlock(topic, n)
		switch {
		case block == nil || block.Offset < 0:
			without = append(without, n)
		case block.Offset < oldest[n].Offset:
			found = append(found, c.finding(critical, "deleted_unread",
				"they were deleted before the group had read them, and the group begins where its offset reset says",
				"keep messages for longer than the group may be stopped or late (retention.ms, retention.bytes); send those again that are missing",
				"group %q has committed %d in %s/%d, which begins at %d: %d offsets are gone",
				c.group, block.Offset, topic, n, oldest[n].Offset, oldest[n].Offset-block.Offset))
		case block.Offset > newest[n].Offset:
			found = append(found, c.finding(critical, "offset_beyond_end",
				"the partition was made anew or has lost its end; the group skips what comes, or begins where its offset reset says",
				"reset the offsets of the group (kafka-consumer-groups.sh --reset-offsets)",
				"group %q has committed %d in %s/%d, which ends at %d", c.group, block.Offset,
				topic, n, newest[n].Offset))
		}
	}
	if len(without) > 0 {
		found = append(found, c.finding(note, "no_offset",
			"the group begins there where its offset reset says: at the newest message it skips what is there before",
			"set auto.offset.reset to earliest (OffsetOldest)",
			"group %q has committed nothing in the partitions %v of topic %q",
			c.group, without, topic))
	}
	return found
}

func (c *cluster) offsets(of map[string][]int32,
	at int64) (map[string]map[int32]*sarama.OffsetResult, error) {
	asked := make(map[string]map[int32]int64, len(of))
	for topic, partitions := range of {
		asked[topic] = make(map[int32]int64, len(partitions))
		for _, n := range partitions {
			asked[topic][n] = at
		}
	}
	answers, err := c.admin.ListOffsets(asked, nil)
	if err != nil {
		return nil, fmt.Errorf("--topics: offsets: %w", err)
	}
	for topic, partitions := range of {
		for _, n := range partitions {
			a := answers[topic][n]
			if a == nil {
				return nil, fmt.Errorf("--topics: the offsets of %s/%d were not answered", topic, n)
			}
			if a.Err != nil && !errors.Is(a.Err, sarama.ErrNoError) { // sarama says so in both ways
				return nil, fmt.Errorf("--topics: the offsets of %s/%d: %w", topic, n, a.Err)
			}
		}
	}
	return answers, nil
}

// atWindow asks kafkaadapter what can come again after the window.
func (c *cluster) atWindow() (found []Finding, err error) {
	retentions, err := kafkasarama.Retentions(c.admin, c.topics...)
	if err != nil {
		return nil, err
	}
	var lags map[string]time.Duration
	if c.group != "" {
		if lags, err = c.lags(c.group, c.topics...); err != nil {
			return nil, err
		}
	}
	for _, e := range kafkaadapter.CheckWindow(c.window, retentions, lags) {
		keeps := fmt.Sprintf("for %v", e.Retention)
		if e.Retention < 0 {
			keeps = "without limit"
		}
		if e.Retention != 0 {
			found = append(found, c.finding(warning, "window_below_retention",
				"what comes again after the window (offsets reset, a replay) is taken for new, and its effect runs twice",
				"a window above retention.ms, or retention.ms below the window; or never read from further back than the window",
				"topic %q keeps messages %s, and their records are kept for %v", e.Topic,
				keeps, e.Window))
		}
		if e.Lag > 0 {
			found = append(found, c.finding(warning, "lag_beyond_window",
				"a duplicate that was sent later may have been recorded, and forgotten, before its first is read",
				"a window above the lag, or more consumers",
				"group %q has not read messages of topic %q that are older than the window (%v): the oldest is of %v ago", c.group,
				e.Topic, e.Window, e.Lag.Round(time.Second)))
		}
	}
	return found, nil
}
