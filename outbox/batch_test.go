package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

var errFailed = errors.New("failed")

// picky refuses a message before it is sent.
type picky struct{ acknowledging }

func (picky) Check(m *Message) error {
	if m.Payload != nil {
		return errFailed
	}
	return nil
}

func rowOf(id int64, key string, edit ...func(*row)) row {
	r := row{id: id, Message: Message{ID: fmt.Sprint(id), Topic: "t", Key: []byte(key),
		Headers: []Header{{Key: DefaultIDHeader}}}}
	for _, f := range edit {
		f(&r)
	}
	return r
}

func held(r *row)  { r.held, r.attempts = true, 1 }
func tried(r *row) { r.attempts = 1 }
func large(r *row) { r.Payload = []byte("x") }
func torn(r *row)  { r.bad = errHeaders }
func other(r *row) { r.Topic = "other" }

// A message that waits for another one is left out, and no other message is.
func TestPick(t *testing.T) {
	tests := []struct {
		name    string
		rows    []row
		sent    []int64
		refused []int64
	}{
		{"all", []row{rowOf(1, "a"), rowOf(2, "b"), rowOf(3, "a"), rowOf(4, "")},
			[]int64{1, 2, 3, 4}, nil},
		{"behind one that waits", []row{rowOf(1, "a", held), rowOf(2, "b"), rowOf(3, "a"),
			rowOf(4, "a", other)}, []int64{2, 4}, nil},
		{"before one that waits", []row{rowOf(1, "a"), rowOf(2, "a", held), rowOf(3, "a")},
			[]int64{1}, nil},
		{"behind one that may fail again",
			[]row{rowOf(1, "a", tried), rowOf(2, "a"), rowOf(3, "b")}, []int64{1, 3}, nil},
		{"behind one that is refused", []row{rowOf(1, "a"), rowOf(2, "a", large), rowOf(3, "a")},
			[]int64{1}, []int64{2}},
		{"behind one that cannot be read", []row{rowOf(1, "a", torn), rowOf(2, "a"), rowOf(3, "b")},
			[]int64{3}, []int64{1}},
		{"without a key nobody waits", []row{rowOf(1, "", held), rowOf(2, "", large),
			rowOf(3, "", tried), rowOf(4, "")}, []int64{3, 4}, []int64{2}},
		{"what waits is not refused", []row{rowOf(1, "a", held, large), rowOf(2, "a", large)},
			nil, nil},
	}
	r := &Relay{cfg: RelayConfig{Publisher: picky{}}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := r.pick(tt.rows)
			var sent, refused []int64
			for i, row := range b.rows {
				sent = append(sent, row.id)
				assert.Equal(t, row.ID, b.messages[i].ID)
			}
			for _, f := range b.refused {
				refused = append(refused, f.row.id)
				assert.ErrorIs(t, f.err, ErrRejected)
			}
			assert.Equal(t, tt.sent, sent)
			assert.Equal(t, tt.refused, refused)
		})
	}
}

// Acknowledged messages count up to the first of their key that is not acknowledged.
func TestJudge(t *testing.T) {
	rows := []row{rowOf(1, "a"), rowOf(2, "b"), rowOf(3, "a"), rowOf(4, "b"), rowOf(5, ""),
		rowOf(6, "")}
	rejected := Reject(errFailed)
	tests := []struct {
		name                            string
		results                         []error
		acknowledged, failed, overtaken []int64
		whole                           bool
	}{
		{"all", make([]error, 6), []int64{1, 2, 3, 4, 5, 6}, nil, nil, false},
		{"one and what follows", []error{errFailed, nil, errFailed, nil, nil, nil},
			[]int64{2, 4, 5, 6}, []int64{1}, nil, false},
		{"one that is overtaken", []error{errFailed, nil, nil, nil, nil, nil}, []int64{2, 4, 5, 6},
			[]int64{1}, []int64{3}, false},
		{"the second", []error{nil, nil, errFailed, nil, nil, nil}, []int64{1, 2, 4, 5, 6},
			[]int64{3}, nil, false},
		{"without a key", []error{nil, nil, nil, nil, errFailed, nil}, []int64{1, 2, 3, 4, 6},
			[]int64{5}, nil, false},
		{"none", slices.Repeat([]error{errFailed}, 6), nil, nil, nil, true},
		{"none, and one for what it is",
			[]error{rejected, errFailed, errFailed, errFailed, errFailed, errFailed}, nil,
			[]int64{1}, nil, true},
		{"all for what they are", slices.Repeat([]error{rejected}, 6), nil, []int64{1, 2, 5, 6},
			nil, false},
	}
	r := &Relay{cfg: RelayConfig{Publisher: acknowledging{}}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := r.pick(rows).judge(tt.results)
			ids := func(fs []failure) (ids []int64) {
				for _, f := range fs {
					ids = append(ids, f.row.id)
				}
				return ids
			}
			assert.Equal(t, tt.acknowledged, append([]int64(nil), v.acknowledged...))
			assert.Equal(t, tt.failed, ids(v.failed))
			assert.Equal(t, tt.overtaken, ids(v.overtaken))
			assert.Equal(t, tt.whole, v.whole != nil)
			assert.Equal(t, tt.whole, len(v.waiting) > 0)
		})
	}
}

// A publisher that returns another number of results has acknowledged none of its messages.
func TestAnswered(t *testing.T) {
	for _, answer := range [][]error{{}, {nil}, {nil, nil, nil}} {
		for _, err := range answered(answer, 2) {
			assert.ErrorIs(t, err, ErrUnacknowledged)
		}
	}
	got := answered(nil, 2)
	assert.Len(t, got, 2)
	assert.Nil(t, got[0])
	assert.Nil(t, got[1])
}

func TestReject(t *testing.T) {
	assert.NoError(t, Reject(nil))
	err := Reject(context.Canceled)
	assert.ErrorIs(t, err, ErrRejected)
	assert.ErrorIs(t, err, context.Canceled)
}
