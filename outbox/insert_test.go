package outbox

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestInsertTx(t *testing.T) {
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			o, tx := newOutbox(t, d), &recorder{}
			m := Message{Topic: "t", Key: []byte("k")}
			if err := o.InsertTx(t.Context(), tx,
				m, Message{ID: "id", Topic: "u", Payload: []byte{}}); err != nil {
				t.Fatal(err)
			}
			if len(tx.queries) != 1 || len(tx.args[0]) != 2*o.dialect.insert.columns {
				t.Fatalf("%d statements, %v", len(tx.queries), tx.args)
			}
			first, second := tx.args[0][:o.dialect.insert.columns], tx.args[0][o.dialect.insert.columns:]
			if id, ok := first[2].(string); !ok || len(id) != 26 || m.ID != "" {
				t.Errorf("a random id: %v; the caller's message has %q", first[2], m.ID)
			}
			if first[5] != nil || second[5] == nil || second[2] != "id" {
				t.Errorf("payloads %v and %v, id %v", first[5], second[5], second[2])
			}
			if err := o.InsertTx(t.Context(), tx); err != nil || len(tx.queries) != 1 {
				t.Errorf("no message: %v, %d statements", err, len(tx.queries))
			}
			tx.err = errors.New("broken")
			if err := o.InsertTx(t.Context(), tx, m); !errors.Is(err, tx.err) {
				t.Errorf("a broken transaction: %v", err)
			}
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
	if err := o.InsertTx(t.Context(), tx,
		append(many, slices.Repeat([]Message{large}, 6)...)...); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	at := 0
	for _, args := range tx.args {
		sizes = append(sizes, len(args)/o.dialect.insert.columns)
		for i := 2; i < len(args); i += o.dialect.insert.columns {
			if want := strconv.Itoa(at); at < len(many) && args[i] != want {
				t.Fatalf("message %s is %v", want, args[i])
			}
			at++
		}
	}
	if !slices.Equal(sizes, []int{500, 500, 5, 2}) {
		t.Errorf("statements of %v rows", sizes)
	}
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
			if !errors.As(err, &input) || input.Field != tt.field || len(tx.queries) != 0 {
				t.Errorf("%v after %d statements; want an InputError on %s before any", err,
					len(tx.queries), tt.field)
			}
		})
	}
	at := Message{ID: long[:MaxID], Topic: long[:MaxTopic], Key: []byte(long[:MaxKey]),
		Payload: make([]byte, DefaultMaxPayload)}
	if err := newOutbox(t, Postgres).InsertTx(t.Context(), &recorder{}, at); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
	var input *InputError
	for name, tx := range map[string]Tx{"nil": nil, "nil inside": (*sql.Tx)(nil),
		"pool": new(sql.DB)} {
		if err := newOutbox(t, Postgres).InsertTx(t.Context(), tx, good); !errors.As(err, &input) ||
			input.Field != "tx" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := new(Outbox).InsertTx(t.Context(), &recorder{}, good); !errors.As(err, &input) ||
		input.Field != "Outbox" {
		t.Errorf("not made by New: %v", err)
	}
}

// Two versions of a program write to one table: a shard must never change.
func TestShardOf(t *testing.T) {
	for key, want := range map[string]int{"a": 0, "account-7": 14, "\x00": 3} {
		if got := shardOf(&Message{Key: []byte(key), ID: "any"}, shards); got != want {
			t.Errorf("shard of %q is %d, want %d", key, got, want)
		}
	}
	counts := [shards]int{}
	for i := range 16_000 {
		counts[shardOf(&Message{ID: strconv.Itoa(i)}, shards)]++
	}
	for no, n := range counts {
		if n < 800 || n > 1200 {
			t.Errorf("shard %d has %d of 16,000", no, n)
		}
	}
}
