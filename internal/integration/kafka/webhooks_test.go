package kafka_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	_ "github.com/go-playground/webhooks/v6/github" // its testdata is the input

	"github.com/onceward/onceward/internal/servertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const webhookPartitions = 6

// payloads reads the webhook bodies that the webhooks module ships as test data:
// GitHub, GitLab, Bitbucket, Gitea, Docker, Azure DevOps.
func payloads(t *testing.T) map[string][]byte {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/go-playground/webhooks/v6").Output()
	require.NoError(t, err)
	root := filepath.Join(strings.TrimSpace(string(dir)), "testdata")
	bodies := map[string][]byte{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		name, _ := filepath.Rel(root, path)
		bodies[name], err = os.ReadFile(path)
		return err
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(bodies), 100, "payloads under %s", root)
	return bodies
}

// webhookRecords delivers each payload three times under one id, twice on one partition
// and once on another, and repeats that under fresh ids up to at least n messages.
func webhookRecords(bodies map[string][]byte, n int) (records []record, ids map[string]int) {
	ids = map[string]int{}
	for round := 0; len(records) < n; round++ {
		for name, body := range bodies {
			id := fmt.Sprintf("%s#%d", name, round)
			ids[id] = len(body)
			p := partitionsOf(webhookPartitions, len(ids))
			r := record{id: id, partition: p, key: name, value: body}
			again := r
			again.partition = partitionsOf(webhookPartitions, len(ids)+1)
			records = append(records, r, r, again)
		}
	}
	return records, ids
}

// Every webhook has its effect once, although each is delivered three times and one of
// the two consumer processes is killed inside an effect, with finished messages that
// are not yet committed.
func TestWebhooksOnceThroughAKill(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		dsn := "file:" + filepath.Join(t.TempDir(), "ledger.db") +
			"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
		webhooksOnce(t, embedded(t).ListenAddrs(), 1, "sqlite", dsn, "t_")
	})
	t.Run("real", func(t *testing.T) {
		brokers, dsn := servertest.Kafka(t), servertest.Postgres(t)
		webhooksOnce(t, brokers, 1, "pgx", dsn,
			"w"+strings.ReplaceAll(servertest.Prefix(t), "-", "_")+"_")
	})
}

func webhooksOnce(t *testing.T, brokers []string, replicas int16, driver, dsn, prefix string) {
	prefix = strings.NewReplacer("-", "_", ".", "_", ":", "_", "/", "_").Replace(prefix)
	topic := strings.ReplaceAll(prefix, "_", "-") + "webhooks"
	cfg := workerConfig{Brokers: brokers, Group: topic + "-group", Topic: topic, Driver: driver,
		DSN: dsn, Prefix: prefix}
	db := ledger(t, cfg)
	createTopic(t, brokers, topic, webhookPartitions, replicas)
	records, ids := webhookRecords(payloads(t), webhookMessages)
	log := produce(t, brokers, topic, records)

	victimConfig := cfg
	victimConfig.Hold = true
	victim, survivor := spawn(t, victimConfig), spawn(t, cfg)
	select {
	case line := <-victim.holding:
		t.Log("killing at", line)
	case err := <-victim.ended:
		t.Fatalf("the consumer ended: %v: %s", err, victim.said())
	case <-time.After(90 * time.Second):
		t.Fatalf("the consumer never got into the state to be killed in: %s", victim.said())
	}
	require.NoError(t, victim.cmd.Process.Signal(syscall.SIGKILL))
	<-victim.ended

	eventually(t, 120*time.Second, func() (bool, string) {
		return committedToEnd(t, brokers, cfg, log)
	})
	_ = survivor.cmd.Process.Signal(syscall.SIGTERM)
	assert.NoError(t, <-survivor.ended, "the surviving consumer has said %s", survivor.said())
	judge(t, db, cfg, ids)

	positions := map[string]int{}
	delivered := victim.positions(positions) + survivor.positions(positions)
	redelivered := delivered - len(positions)
	t.Logf("%d messages, %d ids, %d deliveries, %d of them again", len(records), len(ids),
		delivered, redelivered)
	assert.NotZero(t, redelivered, "nothing was redelivered: the kill proved nothing")
	assert.Len(t, positions, len(records), "positions that were delivered")
}

// ledger makes the tables: effects are appended, with no unique constraint on the id.
func ledger(t *testing.T, cfg workerConfig) *sql.DB {
	t.Helper()
	db, err := sql.Open(cfg.Driver, cfg.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	marks, err := newMarks(cfg)
	require.NoError(t, err)
	require.NoError(t, marks.Migrate(t.Context(), db))
	_, err = db.Exec("CREATE TABLE " + cfg.Prefix +
		"effects (id TEXT NOT NULL, bytes INTEGER NOT NULL, worker INTEGER NOT NULL)")
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, table := range []string{"effects", "marks", "marks_results", "marks_meta"} {
			_, _ = db.Exec("DROP TABLE " + cfg.Prefix + table)
		}
	})
	return db
}

// judge requires exactly one effect per id, of the right payload.
func judge(t *testing.T, db *sql.DB, cfg workerConfig, ids map[string]int) {
	t.Helper()
	rows, err := db.Query("SELECT id, bytes, COUNT(*) FROM " + cfg.Prefix +
		"effects GROUP BY id, bytes")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	effects, lost := 0, 0
	found := map[string]bool{}
	for rows.Next() {
		var id string
		var size, n int
		require.NoError(t, rows.Scan(&id, &size, &n))
		effects += n
		want, ok := ids[id]
		assert.True(t, ok && want == size && n == 1 && !found[id],
			"id %s: %d effects of %d bytes, want one of %d", id, n, size, want)
		found[id] = true
	}
	require.NoError(t, rows.Err())
	for id := range ids {
		if !found[id] {
			lost++
		}
	}
	t.Logf("%d effects for %d ids", effects, len(ids))
	assert.Equal(t, len(ids), effects, "effects")
	assert.Zero(t, lost, "ids that were lost")
}

// committedToEnd compares the group's offsets with the end of the log.
func committedToEnd(t *testing.T, brokers []string, cfg workerConfig,
	log map[int32][]string) (bool, string) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(brokers, clientConfig())
	if err != nil {
		return false, err.Error()
	}
	defer func() { _ = admin.Close() }()
	var partitions []int32
	for p := range log {
		partitions = append(partitions, p)
	}
	offsets, err := admin.ListConsumerGroupOffsets(cfg.Group,
		map[string][]int32{cfg.Topic: partitions})
	if err != nil {
		return false, err.Error()
	}
	for p, ids := range log {
		if block := offsets.GetBlock(cfg.Topic, p); block == nil ||
			block.Offset != int64(len(ids)) {
			return false, fmt.Sprintf("partition %d: %+v, end %d", p, block, len(ids))
		}
	}
	return true, ""
}
