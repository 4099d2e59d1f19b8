package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxConfig is how much of a configuration file is read, in bytes.
const maxConfig = 1 << 20

// clientConfig holds the settings of a Kafka client from a file, with canonical names and with
// values in lower case.
type clientConfig struct {
	file   string
	values map[string]string
	names  map[string]string // from the canonical to the written name
	spring bool              // Spring has another default for enable.auto.commit
	found  []Diagnostic
}

// canonical unifies the spellings of a name: enable.auto.commit, enable-auto-commit,
// KAFKA_ENABLE_AUTO_COMMIT, EnableAutoCommit.
func canonical(name string) string {
	return strings.NewReplacer(".", "", "-", "", "_", "").Replace(strings.ToLower(name))
}

// The settings that doctor looks at, as the ends of canonical names. The part before the end, such
// as spring.kafka.consumer., only says whose setting it is. Names of sarama.Config include their
// path.
const (
	autoCommit    = "enableautocommit"
	saramaAuto    = "consumeroffsetsautocommitenable"
	autoStore     = "enableautooffsetstore"
	offsetReset   = "autooffsetreset"
	saramaInitial = "consumeroffsetsinitial"
	isolation     = "isolationlevel"
	session       = "sessiontimeoutms"
	heartbeat     = "heartbeatintervalms"
	maxPoll       = "maxpollintervalms"
	assignors     = "partitionassignmentstrategy"
	acks          = "acks"
	requiredAcks  = "requestrequiredacks"
	saramaAcks    = "producerrequiredacks"
	idempotence   = "enableidempotence"
)

var (
	ofConsumers = []string{autoCommit, saramaAuto, autoStore, offsetReset, saramaInitial,
		isolation, session, heartbeat, maxPoll, assignors, "groupid"}
	ofProducers = []string{saramaAcks, requiredAcks, acks, idempotence, "transactionalid"}
)

// readClientConfig reads Java properties, a file with librdkafka's names, an environment file or
// JSON.
func readClientConfig(file string) (*clientConfig, error) {
	f, err := os.Open(file) // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("--kafka-config: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--kafka-config: %w", err)
	case len(text) > maxConfig:
		return nil, fmt.Errorf("--kafka-config: %s is larger than %d bytes", file, maxConfig)
	}
	read := readProperties
	trimmed := strings.TrimSpace(string(text))
	if ext := filepath.Ext(file); ext == ".yml" || ext == ".yaml" {
		return nil, fmt.Errorf(
			"--kafka-config: %s is YAML, which is not read: write its settings as properties or JSON", file)
	}
	if strings.HasPrefix(trimmed, "{") {
		read = readJSON
	}
	written, err := read(trimmed)
	if err != nil {
		return nil, fmt.Errorf("--kafka-config: %s: %w", file, err)
	}
	c := &clientConfig{file: file, values: make(map[string]string), names: make(map[string]string)}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		c.add(name, written[name])
	}
	if len(c.values) == 0 {
		return nil, fmt.Errorf(
			"--kafka-config: %s has no setting of a consumer or producer that is known here, such as group.id, enable.auto.commit or acks", file)
	}
	return c, nil
}

// add keeps a setting if doctor looks at it. If several known ends match a name, the longest one
// counts, because acks and request.required.acks are two settings.
func (c *clientConfig) add(name, value string) {
	text, end := canonical(name), ""
	for _, known := range slices.Concat(ofConsumers, ofProducers) {
		if strings.HasSuffix(text, known) && len(known) > len(end) {
			end = known
		}
	}
	if end == "" {
		return
	}
	c.spring = c.spring || strings.HasPrefix(text, "spring")
	c.values[end] = strings.ToLower(strings.Trim(strings.TrimSpace(value), `"'`))
	c.names[end] = name
}

// readProperties reads lines "name=value" or "name: value". It understands comments and continued
// lines.
func readProperties(text string) (map[string]string, error) {
	all := make(map[string]string)
	number, before := 0, ""
	for line := range strings.Lines(text) {
		number++
		line = before + strings.TrimSpace(line)
		before = ""
		if line == "" || strings.ContainsRune("#![", rune(line[0])) {
			continue
		}
		if rest, more := strings.CutSuffix(line, `\`); more {
			before = rest
			continue
		}
		at := strings.IndexAny(line, "=:")
		if at <= 0 { // the line may hold a password
			return nil, fmt.Errorf("line %d is not name=value", number)
		}
		all[strings.TrimSpace(strings.TrimPrefix(line[:at], "export "))] = line[at+1:]
	}
	return all, nil
}

// readJSON reads an object of names, or nested objects as in sarama.Config, and joins their names.
func readJSON(text string) (map[string]string, error) {
	var tree map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, errors.New("is not a JSON object") // the text may contain a password
	}
	all := make(map[string]string)
	var walk func(prefix string, of map[string]any)
	walk = func(prefix string, of map[string]any) {
		for name, value := range of {
			switch v := value.(type) {
			case map[string]any:
				walk(prefix+name+".", v)
			case []any:
				words := make([]string, len(v))
				for i, word := range v {
					words[i] = fmt.Sprint(word)
				}
				all[prefix+name] = strings.Join(words, ",")
			case nil:
			default:
				all[prefix+name] = fmt.Sprint(v)
			}
		}
	}
	walk("", tree)
	return all, nil
}

// look reports the settings that lose or double messages.
func (c *clientConfig) look() []Diagnostic {
	if name, _ := c.get(ofConsumers...); name != "" {
		c.atCommits()
		c.atReset()
		c.atIsolation()
		c.atSession()
		c.atAssignors()
	}
	c.atAcks()
	return c.found
}

func (c *clientConfig) diagnostic(severity, code, detail, why, fix string) {
	c.found = append(c.found, Diagnostic{severity, code, c.file, detail, why, fix})
}

// said quotes a setting as it is written in the file.
func (c *clientConfig) said(name string) string { return c.names[name] + " is " + c.values[name] }

// get returns the first of these settings that is in the file.
func (c *clientConfig) get(names ...string) (name, value string) {
	for _, n := range names {
		if v, ok := c.values[n]; ok {
			return n, v
		}
	}
	return "", ""
}

func (c *clientConfig) atCommits() {
	name, value := c.get(autoCommit, saramaAuto)
	detail := "enable.auto.commit is not set, and true without"
	switch {
	case value == "false":
		return
	case name == "" && c.spring:
		return // Spring's own default is false
	case c.values[autoStore] == "false":
		c.diagnostic(note, "auto_commit_of_stored",
			c.said(autoStore)+", and offsets are committed by the clock",
			"what the program stores is committed: an offset that it stores before the record is lost by a crash", "store an offset after the record alone")
		return
	case name != "":
		detail = c.said(name)
	}
	c.diagnostic(critical, "auto_commit", detail,
		"the client commits by the clock what it has handed out, done or not: after a crash nobody gets those messages again",
		"set enable.auto.commit to false (sarama: Consumer.Offsets.AutoCommit.Enable, franz-go: DisableAutoCommit) and commit after the record, as kafkaadapter does")
}

func (c *clientConfig) atReset() {
	name, value := c.get(offsetReset, saramaInitial)
	detail := "auto.offset.reset is not set, and latest without"
	switch {
	case name == offsetReset &&
		slices.Contains([]string{"earliest", "smallest", "beginning", "none", "error"}, value),
		name == saramaInitial && value == "-2":
		return
	case name != "":
		detail = c.said(name)
	}
	c.diagnostic(warning, "offset_reset", detail,
		"a group without an offset (new, stopped for longer than offsets.retention.minutes, or behind what the topic keeps) skips every message that is there",
		"set auto.offset.reset to earliest (sarama: Consumer.Offsets.Initial to OffsetOldest): a message that is done is skipped as a duplicate")
}

func (c *clientConfig) atIsolation() {
	const why = "messages of aborted transactions have effects"
	const fix = "set isolation.level to read_committed"
	switch value, set := c.values[isolation]; {
	case !set:
		c.diagnostic(note, "isolation_level",
			"isolation.level is not set: read_uncommitted in Java and sarama, read_committed in librdkafka", why+" where it is read_uncommitted", fix)
	case value != "read_committed" && value != "1":
		c.diagnostic(warning, "isolation_level", c.said(isolation), why, fix)
	}
}

// minSession is Kafka's rule for heartbeats: a session should have room for three of them.
const minSession = 3

func (c *clientConfig) atSession() {
	const defaultSession, defaultHeartbeat, shortPoll = 45000, 3000, 60000
	number := func(name string, otherwise int) (int, bool) {
		if n, err := strconv.Atoi(c.values[name]); err == nil {
			return n, true
		}
		return otherwise, false
	}
	length, set1 := number(session, defaultSession)
	beat, set2 := number(heartbeat, defaultHeartbeat)
	if (set1 || set2) && length < minSession*beat {
		c.diagnostic(warning, "session_timeout",
			fmt.Sprintf("session.timeout.ms is %d, and heartbeat.interval.ms %d", length, beat),
			"one late heartbeat or two take the partitions away from a consumer that works: its messages are run by another at the same time",
			"set session.timeout.ms to 45000 and heartbeat.interval.ms to 3000")
	}
	if poll, _ := number(maxPoll, shortPoll); poll < shortPoll {
		c.diagnostic(note, "max_poll_interval", fmt.Sprintf("max.poll.interval.ms is %d", poll),
			"handlers that take longer in sum between two polls lose their partitions while they run, and others begin the same messages",
			"set max.poll.interval.ms above what a batch takes at its worst, downstream timeouts and retries included")
	}
}

func (c *clientConfig) atAssignors() {
	if v := canonical(c.values[assignors]); v != "" && !strings.Contains(v, "cooperative") {
		c.diagnostic(note, "eager_rebalance", c.said(assignors),
			"each rebalance takes all partitions from everybody, and messages in flight are redelivered to other members", "cooperative-sticky, by two rolling restarts")
	}
}

func (c *clientConfig) atAcks() {
	const fix = "set acks to all, and min.insync.replicas of the topic to 2"
	name, value := c.get(acks, requiredAcks, saramaAcks)
	switch value {
	case "0", "none", "noresponse":
		c.diagnostic(critical, "acks", c.said(name),
			"nobody says whether a message has arrived: each error of a connection loses some", fix)
	case "1", "leader", "waitforlocal":
		c.diagnostic(warning, "acks", c.said(name),
			"a leader that is lost after it has answered takes messages with it that its followers have not got", fix)
	}
	if c.values[idempotence] == "false" {
		c.diagnostic(note, "idempotence", c.said(idempotence),
			"a retry of the producer appends the message again, maybe behind later ones: duplicates of one id are skipped, their order is not restored",
			"set enable.idempotence to true")
	}
}
