package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
)

// ClaimedBy reads the answer of the claim script.
func ClaimedBy(_ *driver.ClaimRequest, r redisscript.Reply, rec driver.Record) (driver.Answer,
	error) {
	outcome, known := claimOutcomes[r.Answer]
	if !known {
		return driver.Answer{}, Unexpected(r)
	}
	return driver.Answer{Outcome: outcome, Mine: r.Answer == "mine", Record: rec}, nil
}

var claimOutcomes = map[string]driver.Outcome{
	"acquired":  driver.Acquired,
	"mine":      driver.Acquired,
	"duplicate": driver.Duplicate,
	"in_flight": driver.InFlight,
	"mismatch":  driver.Mismatch,
	"uncertain": driver.Uncertain,
}

// Unexpected returns the error of an answer that the script is not known to give.
func Unexpected(r redisscript.Reply) error { return fmt.Errorf("script answered %q", r.Answer) }

// Finished reads the answer to a Finish. The script does not repeat a result that it has just
// written, so Finished takes the result from the change.
func Finished(c *driver.Finish, r redisscript.Reply, rec driver.Record) (driver.Answer, error) {
	ans := driver.Answer{Record: rec}
	switch r.Answer {
	case "held":
		ans.Held, ans.Written = true, true
		ans.Record.Result = writtenResult(c, &rec)
	case "landed":
		ans.Written = true
		ans.Record.Result = writtenResult(c, &rec)
	case "again":
		ans.Held, ans.Written = true, true
	case "landed_again":
		ans.Written = true
	case "refused":
	default:
		return driver.Answer{}, Unexpected(r)
	}
	return ans, nil
}

// writtenResult returns the result of a change as it was written. For some keys no result is kept.
func writtenResult(c *driver.Finish, rec *driver.Record) []byte {
	if rec.NoResult {
		return nil
	}
	return CloneResult(c)
}

// ErrorsOf yields the error of every answer.
func ErrorsOf(lists ...[]driver.Answer) func(yield func(error) bool) {
	return func(yield func(error) bool) {
		for _, answers := range lists {
			for i := range answers {
				if !yield(answers[i].Err) {
					return
				}
			}
		}
	}
}

// AnswerOf reads the reply of a script. The function read reads the part of the reply that is about
// the item.
func AnswerOf[T any](op string, item *T, r redisscript.Reply,
	read func(*T, redisscript.Reply, driver.Record) (driver.Answer, error)) driver.Answer {
	if r.Err != nil {
		return driver.Answer{Err: Wrap(op, r.Err)}
	}
	if r.Answer == redisscript.AnswerEdge {
		return driver.Answer{Err: Wrap(op, &EdgeError{time.UnixMilli(0).Add(r.Left)})}
	}
	var rec driver.Record
	if r.Record != "" {
		stored, err := DecodeRecord(r.Record)
		if err != nil {
			return driver.Answer{Err: fmt.Errorf("redisadapter: %s: %w: %w", op,
				driver.ErrUnreadable, err)}
		}
		rec = stored.View(r.Left, r.Age)
	}
	ans, err := read(item, r, rec)
	if err != nil {
		return driver.Answer{Err: Wrap(op, err)}
	}
	return ans
}

// EdgeError says that the buckets that a script was given do not cover the window before the
// server's clock.
type EdgeError struct{ At time.Time }

// Error implements error.
func (e *EdgeError) Error() string {
	return fmt.Sprintf("the server's clock, at %v, is not where it was",
		e.At.UTC().Format(time.RFC3339Nano))
}

// AtEdge returns the reading of its clock that a server returned instead of a script's answer.
func AtEdge(err error, sent time.Time) (Reading, bool) {
	var edge *EdgeError
	if !errors.As(err, &edge) {
		return Reading{}, false
	}
	return Reading{At: edge.At, Error: time.Since(sent) + time.Millisecond}, true
}
