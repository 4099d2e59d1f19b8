package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
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

// What waits for another message is left out, and nothing else is.
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
				if b.messages[i].ID != row.ID {
					t.Errorf("row %d goes with message %s", row.id, b.messages[i].ID)
				}
			}
			for _, f := range b.refused {
				refused = append(refused, f.row.id)
				if !errors.Is(f.err, ErrRejected) {
					t.Errorf("%d is refused with %v", f.row.id, f.err)
				}
			}
			if !slices.Equal(sent, tt.sent) || !slices.Equal(refused, tt.refused) {
				t.Errorf("sent %v, refused %v; want %v and %v", sent, refused, tt.sent, tt.refused)
			}
		})
	}
}

// What is acknowledged counts up to the first of its key that is not.
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
			if !slices.Equal(v.acknowledged, tt.acknowledged) ||
				!slices.Equal(ids(v.failed), tt.failed) ||
				!slices.Equal(ids(v.overtaken), tt.overtaken) || (v.whole != nil) != tt.whole ||
				(len(v.waiting) > 0) != tt.whole {
				t.Errorf("acknowledged %v, failed %v, overtaken %v, whole %v", v.acknowledged,
					ids(v.failed), ids(v.overtaken), v.whole)
			}
		})
	}
}

// A publisher that answers for another number of messages has not said what became of any.
func TestAnswered(t *testing.T) {
	for _, answer := range [][]error{{}, {nil}, {nil, nil, nil}} {
		for _, err := range answered(answer, 2) {
			if !errors.Is(err, ErrUnacknowledged) {
				t.Errorf("%d results: %v", len(answer), err)
			}
		}
	}
	if got := answered(nil, 2); len(got) != 2 || got[0] != nil || got[1] != nil {
		t.Errorf("nil: %v", got)
	}
}

func TestReject(t *testing.T) {
	if Reject(nil) != nil {
		t.Error("nil became an error")
	}
	if err := Reject(context.Canceled); !errors.Is(err, ErrRejected) ||
		!errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
