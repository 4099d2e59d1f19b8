package outbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

// A message that SQL alone inserts is the same as one that Go inserts, in the same shard, so that
// both together keep the order of a key.
func TestInsertFunction(t *testing.T) {
	h := newHouse(t, postgres())
	long := strings.Repeat("n", 300)
	want := []outbox.Message{
		{ID: "a/0", Topic: "t", Key: []byte("a"), Payload: []byte(`{"é": 1}`), Headers: []outbox.Header{
			{Key: "empty", Value: []byte{}}, {Key: "null"}, {Key: long, Value: []byte(long)}, {Key: "ä", Value: []byte("1")}}},
		{ID: "no key", Topic: "t", Payload: nil, Headers: []outbox.Header{}},
		{ID: "a/1", Topic: "t", Key: []byte("a"), Payload: []byte{}, Headers: []outbox.Header{}},
	}
	for _, key := range []string{"", "a", "account-7", "é\x01", long, "b", "c", "d", "e", "f"} {
		m := outbox.Message{ID: "shard/" + key, Topic: "t", Key: []byte(key)}
		if m.ID = strings.ReplaceAll(m.ID, "\x01", ""); len(m.ID) > 255 {
			m.ID = m.ID[:255]
		}
		h.insert(t, m)
		var shard, of int
		require.NoError(t, h.db.QueryRowContext(t.Context(), `SELECT shard, `+h.table+
			`_shard(CASE WHEN key = '' THEN convert_to(dedup_id, 'UTF8') ELSE key END) FROM `+h.table+
			` ORDER BY id DESC LIMIT 1`).Scan(&shard, &of))
		assert.Equal(t, shard, of, "the shard of %q", key)
	}
	h.exec(t, `DELETE FROM `+h.table)
	h.exec(t, `SELECT `+h.table+`_insert('t', 'a', '{"é": 1}', dedup_id => 'a/0', headers => jsonb_build_object(`+
		`'null', NULL, 'empty', '', 'ä', 1, repeat('n', 300), repeat('n', 300)))`)
	h.exec(t, `SELECT `+h.table+`_insert('t', NULL, NULL, dedup_id => 'no key', headers => NULL)`)
	h.exec(t, `SELECT `+h.table+`_insert(topic => 't', key => 'a', payload => '', dedup_id => 'a/1')`)
	h.exec(t, `SELECT `+h.table+`_insert('t', 'random', '')`)
	h.exec(t, `SELECT `+h.table+`_insert('t', 'a', '', not_before => now() + interval '1 hour')`)
	b := newBroker()
	start(t, h.relay(t, b))
	got := map[string]outbox.Message{}
	for _, m := range b.wait(t, len(want)+1) {
		m.Headers = m.Headers[:len(m.Headers)-1]
		got[m.ID] = m
	}
	for _, w := range want {
		assert.ElementsMatch(t, w.Headers, got[w.ID].Headers)
		w.Headers = got[w.ID].Headers
		assert.Equal(t, w, got[w.ID])
	}
	lag, err := h.box.Lag(t.Context(), h.db)
	require.NoError(t, err)
	assert.Equal(t, 1, lag.Scheduled)
}

func TestInsertFunctionRefuses(t *testing.T) {
	h := newHouse(t, postgres())
	for call, want := range map[string]string{
		`'two words', 'k', 'p'`:                                 "topic must be",
		`NULL, 'k', 'p'`:                                        "topic must be",
		`repeat('t', 250), 'k', 'p'`:                            "topic must be",
		`'t', repeat('k', 4097), 'p'`:                           "key must have",
		`'t', 'k', 'p', dedup_id => repeat('i', 256)`:           "dedup_id must have",
		`'t', 'k', 'p', dedup_id => 'line' || chr(10)`:          "dedup_id must have",
		`'t', 'k', 'p', headers => '["a", "b"]'::jsonb`:         "object",
		`'t', 'k', 'p', not_before => '-infinity'`:              "not_before must be",
		`'t', 'k', 'p', not_before => '1969-12-31 23:59:59+00'`: "not_before must be",
		`'t', 'k', 'p', not_before => '2200-01-01 00:00:00+00'`: "not_before must be",
	} {
		_, err := h.db.ExecContext(t.Context(), `SELECT `+h.table+`_insert(`+call+`)`)
		assert.ErrorContains(t, err, want, call)
	}
}

// codeOf returns the blocks of a language in the page about rows, with the names of a table.
func codeOf(t *testing.T, language, table string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/outbox-rows.md")
	require.NoError(t, err)
	var all []string
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").
		FindAllSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(string(found[1]), "onceward_outbox", table))
	}
	return all
}

// The triggers of the page insert a message for each payment, and none for one that is rolled back.
func TestTriggerOfThePage(t *testing.T) {
	for _, e := range []engine{postgres(), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			h := newHouse(t, e)
			payments := h.table + "_pay"
			language := map[outbox.Dialect]string{outbox.Postgres: "sql", outbox.MySQL: "mysql"}
			h.exec(t, `CREATE TABLE `+payments+` (id BIGINT PRIMARY KEY, account VARCHAR(20), amount BIGINT)`)
			blocks := codeOf(t, language[e.dialect], h.table)
			require.Len(t, blocks, 2)
			for _, block := range blocks {
				for statement := range strings.SplitSeq(block, "\n\n") {
					statement = strings.ReplaceAll(statement, "payment_told", payments+"_told")
					statement = strings.ReplaceAll(statement, " ON payment ", " ON "+payments+" ")
					h.exec(t, strings.TrimSuffix(strings.TrimSpace(statement), ";"))
				}
			}
			t.Cleanup(func() { h.dropPage(t, payments) })
			h.exec(t, `INSERT INTO `+payments+` (id, account, amount) VALUES (1, 'a', 5), (2, 'a', 6)`)
			tx, err := h.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(),
				`INSERT INTO `+payments+` (id, account, amount) VALUES (3, 'a', 7)`)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			h.insert(t, outbox.Message{ID: "go", Topic: "bookings", Key: []byte("a")})
			var shards int
			require.NoError(t, h.db.QueryRowContext(t.Context(),
				`SELECT count(DISTINCT shard) FROM `+h.table).Scan(&shards))
			assert.Equal(t, 1, shards, "Go puts the key into another shard")
			b := newBroker()
			start(t, h.relay(t, b))
			h.drained(t)
			got := b.wait(t, 3)
			require.Len(t, got, 3)
			assert.Equal(t, []string{"payment-1", "payment-2", "go"},
				[]string{got[0].ID, got[1].ID, got[2].ID})
			assert.Equal(t, "a", string(got[0].Key))
			assert.Len(t, got[0].Headers, 1, "the id's")
			assert.JSONEq(t, `{"id": 1, "account": "a", "amount": 5}`, string(got[0].Payload))
		})
	}
}

func (h *house) dropPage(t *testing.T, payments string) {
	h.exec(t, `DROP TABLE `+payments)
	if h.e.dialect == outbox.MySQL {
		h.exec(t, `DROP PROCEDURE `+h.table+`_insert`)
		return
	}
	h.exec(t, `DROP FUNCTION `+payments+`_told()`)
}
