package redisscript

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reply is what one script returned, or the error that says why that is unknown.
type Reply struct {
	// Answer is one of the words that the script's header documents.
	Answer string
	// Left is how long the lease still lasts, or, without a lease, how long the record
	// is kept.
	Left time.Duration
	// Age is the time since the key succeeded or failed.
	Age time.Duration
	// Record is the value of the key, or empty when there is none.
	Record string
	// Err is set when the script was refused, or may or may not have run.
	Err error
}

// AnswerEdge is the answer of a script whose buckets do not cover the window before the
// server's clock. Left has that clock, as the time since 1970. The script did nothing.
const AnswerEdge = "edge"

// ErrUnreadable is in the Err of a Reply when the key holds a value that is not a record
// of a version that the scripts know.
var ErrUnreadable = errors.New("unreadable record")

// parse reads the four values that every script returns.
//
// The value comes before the error: when a connection breaks in the middle of a
// pipeline, go-redis sets that error on all its commands, even if it has read their
// replies. A command that was answered on an earlier try keeps that answer; every later
// try is harmless.
func parse(cmd *redis.Cmd) Reply {
	v, answered := cmd.Val().([]any)
	if err := cmd.Err(); err != nil && !answered {
		return Reply{Err: unreadable(err)}
	}
	if !answered {
		return Reply{Err: fmt.Errorf("script returned %T", cmd.Val())}
	}
	if len(v) != 4 {
		return Reply{Err: fmt.Errorf("script returned %d values, not 4", len(v))}
	}
	answer, ok1 := v[0].(string)
	left, ok2 := v[1].(int64)
	age, ok3 := v[2].(int64)
	record, ok4 := v[3].(string)
	switch {
	case !ok1 || !ok2 || !ok3 || !ok4:
		return Reply{Err: fmt.Errorf("script returned (%T, %T, %T, %T)", v[0], v[1], v[2], v[3])}
	case answer == "unreadable":
		return Reply{Err: fmt.Errorf("%w: %d bytes, the first is 0x%02x", ErrUnreadable, left, age)}
	}
	return Reply{Answer: answer, Left: FromMillis(left), Age: FromMillis(age), Record: record}
}

// unreadable recognizes a key that holds another type.
func unreadable(err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}

// Fence returns the fence in a record, and 0 for one that is too short.
func Fence(record string) uint64 {
	if len(record) < 16 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(record[8:16]))
}

// MaxFence is the largest fence that the scripts can hold.
const MaxFence = 1<<53 - 2

// MaxMillis bounds a duration that is sent to the server, at about 140 years: Redis
// refuses a longer expiry.
const MaxMillis = 1 << 42

// Millis returns d in milliseconds, rounded up so that a positive duration stays
// positive, and at most MaxMillis.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return min(ms, MaxMillis)
}

// FromMillis returns ms as a duration, or the largest duration if ms is larger.
func FromMillis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(min(ms, most), -most)) * time.Millisecond
}
