package outbox

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorder is a transaction that keeps what it is given.
type recorder struct {
	queries []string
	args    [][]any
	err     error
}

func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	r.queries, r.args = append(r.queries, query), append(r.args, args)
	return nil, r.err
}

func newOutbox(t *testing.T, d Dialect) *Outbox {
	t.Helper()
	o, err := New(Config{Dialect: d})
	require.NoError(t, err)
	return o
}

func TestInsertTx(t *testing.T) {
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			o, tx := newOutbox(t, d), &recorder{}
			m := Message{Topic: "t", Key: []byte("k")}
			require.NoError(t, o.InsertTx(t.Context(), tx,
				m, Message{ID: "id", Topic: "u", Payload: []byte{}}))
			require.Len(t, tx.queries, 1)
			require.Len(t, tx.args[0], 2*o.dialect.insert.columns)
			columns := o.dialect.insert.columns
			first, second := tx.args[0][:columns], tx.args[0][columns:]
			id, ok := first[2].(string)
			assert.True(t, ok, "a random id: %v; the caller's message has %q", first[2], m.ID)
			assert.Len(t, id, 26)
			assert.Empty(t, m.ID)
			assert.Nil(t, first[5])
			assert.NotNil(t, second[5])
			assert.Equal(t, "id", second[2])
			require.NoError(t, o.InsertTx(t.Context(), tx))
			assert.Len(t, tx.queries, 1)
			tx.err = errors.New("broken")
			err := o.InsertTx(t.Context(), tx, m)
			assert.ErrorIs(t, err, tx.err)
		})
	}
}

// A statement is bounded in parameters and in bytes, and messages keep their order.
func TestInsertTxInPieces(t *testing.T) {
	o, tx := newOutbox(t, Postgres), &recorder{}
	var many []Message
	for i := range 2*maxRows + 1 {
		many = append(many, Message{ID: strconv.Itoa(i), Topic: "t"})
	}
	large := Message{ID: "large", Topic: "t", Payload: make([]byte, 900_000)}
	require.NoError(t, o.InsertTx(t.Context(), tx,
		append(many, slices.Repeat([]Message{large}, 6)...)...))
	var sizes []int
	at := 0
	for _, args := range tx.args {
		sizes = append(sizes, len(args)/o.dialect.insert.columns)
		for i := 2; i < len(args); i += o.dialect.insert.columns {
			want := strconv.Itoa(at)
			require.False(t, at < len(many) && args[i] != want, "message %s is %v", want, args[i])
			at++
		}
	}
	assert.Equal(t, []int{500, 500, 5, 2}, sizes)
}

func TestInsertTxRefuses(t *testing.T) {
	long := strings.Repeat("x", 5000)
	good := Message{ID: "id", Topic: "t"}
	tests := map[string]struct {
		field string
		edit  func(*Message)
	}{
		"long id":         {"messages[1].ID", func(m *Message) { m.ID = long[:MaxID+1] }},
		"id not UTF-8":    {"messages[1].ID", func(m *Message) { m.ID = "\xff" }},
		"id with a NUL":   {"messages[1].ID", func(m *Message) { m.ID = "a\x00" }},
		"no topic":        {"messages[1].Topic", func(m *Message) { m.Topic = "" }},
		"long topic":      {"messages[1].Topic", func(m *Message) { m.Topic = long[:MaxTopic+1] }},
		"space in topic":  {"messages[1].Topic", func(m *Message) { m.Topic = "a b" }},
		"umlaut in topic": {"messages[1].Topic", func(m *Message) { m.Topic = "\u00e4" }},
		"long key": {"messages[1].Key", func(m *Message) {
			m.Key = []byte(long[:MaxKey+1])
		}},
		"large payload": {"messages[1].Payload", func(m *Message) {
			m.Payload = make([]byte, DefaultMaxPayload+1)
		}},
		"large headers": {"messages[1].Headers", func(m *Message) {
			m.Headers = []Header{{Value: make([]byte, MaxHeaders)}}
		}},
		"the id's header": {"messages[1].Headers", func(m *Message) {
			m.Headers = []Header{{Key: DefaultIDHeader}}
		}},
		"header not UTF8": {"messages[1].Headers", func(m *Message) {
			m.Headers = []Header{{Key: "\xff"}}
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tx, bad := &recorder{}, good
			tt.edit(&bad)
			err := newOutbox(t, Postgres).InsertTx(t.Context(), tx, good, bad)
			var input *InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, tt.field, input.Field)
			assert.Len(t, tx.queries, 0)
		})
	}
	at := Message{ID: long[:MaxID], Topic: long[:MaxTopic], Key: []byte(long[:MaxKey]),
		Payload: make([]byte, DefaultMaxPayload)}
	assert.NoError(t, newOutbox(t, Postgres).InsertTx(t.Context(), &recorder{}, at))
	var input *InputError
	for name, tx := range map[string]Tx{"nil": nil, "nil inside": (*sql.Tx)(nil),
		"pool": new(sql.DB)} {
		require.ErrorAs(t, newOutbox(t, Postgres).InsertTx(t.Context(), tx, good), &input, name)
		assert.Equal(t, "tx", input.Field, name)
	}
	require.ErrorAs(t, new(Outbox).InsertTx(t.Context(), &recorder{}, good), &input)
	assert.Equal(t, "Outbox", input.Field)
}

// Two versions of a program write to one table: a shard must never change.
func TestShardOf(t *testing.T) {
	for key, want := range map[string]int{"a": 0, "account-7": 14, "\x00": 3} {
		got := shardOf(&Message{Key: []byte(key), ID: "any"}, shards)
		assert.Equal(t, want, got)
	}
	counts := [shards]int{}
	for i := range 16_000 {
		counts[shardOf(&Message{ID: strconv.Itoa(i)}, shards)]++
	}
	for _, n := range counts {
		assert.GreaterOrEqual(t, n, 800)
		assert.LessOrEqual(t, n, 1200)
	}
}
