package kafkaconfluent

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/dedup"
)

// defaults are the properties of a consumer that the caller need not set.
var defaults = kafka.ConfigMap{
	"enable.auto.commit":       false,
	"enable.auto.offset.store": false,
	"isolation.level":          "read_committed",
	"auto.offset.reset":        "error",
	// After a pause, a partition is fetched only once the fetch that is under way has ended. That
	// fetch takes this long if the broker's other partitions have no messages.
	"fetch.wait.max.ms": 100,
}

// pollLimit is librdkafka's default of max.poll.interval.ms.
const pollLimit = 300000

func bad(property, format string, args ...any) error {
	return &dedup.InputError{Field: "kafka.ConfigMap." + property,
		Reason: fmt.Sprintf(format, args...)}
}

// properties reads a configuration. Values may be text, numbers or booleans.
type properties kafka.ConfigMap

func (p properties) text(name string) string {
	value, ok := p[name]
	if !ok {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(fmt.Sprint(value)))
}

// on reports whether a property that is a switch is on, in the spellings of librdkafka.
func (p properties) on(name string) bool {
	switch p.text(name) {
	case "true", "t", "1":
		return true
	}
	return false
}

// millis returns the time in a property, and whether the property is a number.
func (p properties) millis(name string, usual int) (time.Duration, bool) {
	if _, ok := p[name]; !ok {
		return time.Duration(usual) * time.Millisecond, true
	}
	n, err := strconv.Atoi(p.text(name))
	return time.Duration(n) * time.Millisecond, err == nil
}

// complete returns the configuration of a client. An [*dedup.InputError] names the first property
// with which messages would be lost, or the consumer could not do what it promises.
func (c *Consumer) complete(config kafka.ConfigMap) (kafka.ConfigMap, error) {
	all := maps.Clone(defaults)
	maps.Copy(all, config)
	p, group := properties(all), c.engine.Group()
	reset := p.text("auto.offset.reset")
	limit, isNumber := p.millis("max.poll.interval.ms", pollLimit)
	switch {
	case p.text("bootstrap.servers") == "" && p.text("metadata.broker.list") == "":
		return nil, bad("bootstrap.servers", "is empty")
	case all["group.id"] != nil && all["group.id"] != group:
		return nil, bad("group.id", "is %v, and %q in New", all["group.id"], group)
	case all["default.topic.config"] != nil:
		return nil, bad("default.topic.config",
			"is set: it is deprecated, and would win over what is checked here")
	case p.on("enable.auto.commit"):
		return nil, bad("enable.auto.commit",
			"is on: offsets would be committed by the clock, not after the record")
	case p.on("enable.auto.offset.store"):
		return nil, bad("enable.auto.offset.store",
			"is on: offsets would be kept for a commit before the record")
	case !resets[reset] && !c.engine.Allow.Skip:
		return nil, bad("auto.offset.reset",
			"is neither error nor earliest: messages could silently be skipped; set kafkaadapter.Allow.Skip if that is meant")
	case p.text("isolation.level") != "read_committed":
		return nil, bad("isolation.level",
			"is not read_committed: messages of aborted transactions would have an effect")
	case p.on("go.events.channel.enable"):
		return nil, bad("go.events.channel.enable", "is on: the client is polled")
	case !isNumber:
		return nil, bad("max.poll.interval.ms", "is %v, not a number",
			all["max.poll.interval.ms"])
	case c.engine.Tuning.Drain > limit-c.engine.Handover():
		return nil, bad("max.poll.interval.ms",
			"is %v, less than kafkaadapter.Tuning.Drain (%v) and %v: nothing is polled while a partition is drained, and it would be given away", limit, c.engine.Tuning.Drain, c.engine.Handover())
	}
	all["group.id"] = group
	return all, nil
}

// resets are the values of auto.offset.reset with which no message in the log is skipped.
var resets = map[string]bool{"error": true, "earliest": true, "beginning": true, "smallest": true}

// startOf is where a partition begins if nothing is committed for it.
func startOf(config kafka.ConfigMap) kafka.Offset {
	switch properties(config).text("auto.offset.reset") {
	case "latest", "end", "largest":
		return kafka.OffsetEnd
	}
	return kafka.OffsetBeginning
}

func checkTopics(topics []string) error {
	if len(topics) == 0 {
		return &dedup.InputError{Field: "topics", Reason: "is empty"}
	}
	for _, topic := range topics {
		if topic == "" || strings.HasPrefix(topic, "^") {
			return &dedup.InputError{Field: "topics",
				Reason: fmt.Sprintf("has %q, which is not the name of a topic", topic)}
		}
	}
	return nil
}
