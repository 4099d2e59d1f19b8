package batchsplit

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/outbox"
)

var (
	errLarge = errors.New("too large")
	errDown  = errors.New("down")
)

func TestResend(t *testing.T) {
	l, d := errLarge, errDown
	tests := []struct {
		name     string
		keys     string // of each message; '-' for none
		results  []error
		alone    map[int]error // what sending it again gives
		sent     []int
		rejected []int
		failed   []int
	}{
		{"nothing is suspect", "aab", []error{nil, d, nil}, nil, nil, nil, []int{1}},
		{"one of them is", "abc", []error{l, l, l}, map[int]error{1: l}, []int{0, 1, 2},
			[]int{1}, []int{1}},
		{"and what follows it waits", "aab", []error{l, l, l}, map[int]error{0: l}, []int{0, 2},
			[]int{0}, []int{0, 1}},
		{"the broker goes away", "aab", []error{l, l, l}, map[int]error{0: d}, []int{0, 2},
			nil, []int{0, 1}},
		{"one that was overtaken stays so", "aaab", []error{nil, l, nil, l}, nil, []int{3},
			nil, []int{1}},
		{"behind one that failed otherwise", "aa", []error{d, l}, nil, nil, nil, []int{0, 1}},
		{"without keys there is no order", "---", []error{l, nil, l}, map[int]error{0: l},
			[]int{0, 2}, []int{0}, []int{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var messages []outbox.Message
			for _, key := range tt.keys {
				m := outbox.Message{Topic: "t"}
				if key != '-' {
					m.Key = []byte(string(key))
				}
				messages = append(messages, m)
			}
			var sent, rejected, failed []int
			results := slices.Clone(tt.results)
			Resend(t.Context(), messages, results, func(err error) bool {
				return errors.Is(err, errLarge)
			}, func(i int) error {
				sent = append(sent, i)
				return tt.alone[i]
			})
			for i, err := range results {
				if err != nil {
					failed = append(failed, i)
				}
				if errors.Is(err, outbox.ErrRejected) {
					rejected = append(rejected, i)
				}
			}
			assert.Equal(t, tt.sent, sent)
			assert.Equal(t, tt.rejected, rejected)
			assert.Equal(t, tt.failed, failed)
		})
	}
}

// A message must not be given up because there was no time to send it again.
func TestResendEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := []error{errLarge}
	Resend(ctx, []outbox.Message{{Topic: "t"}}, results, func(error) bool {
		return true
	}, func(int) error {
		t.Error("sent")
		return nil
	})
	assert.NotNil(t, results[0])
	assert.NotErrorIs(t, results[0], outbox.ErrRejected)
}
