package keys

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// View is what the commands show of a key, and what --json writes. A field is null if the store
// does not keep it, or if it has no meaning in this state.
type View struct {
	ID  string `json:"id"`
	Key string `json:"key,omitempty"`
	// FoundBy is the detail by which the key was found, and Looked lists where the command looked
	// for it.
	FoundBy string   `json:"found_by,omitempty"`
	Looked  []Looked `json:"looked,omitempty"`

	Store string `json:"store"`
	State string `json:"state"`
	// Attempt counts claims. Fence is that of the newest claim.
	Attempt *int    `json:"attempt"`
	Fence   *uint64 `json:"fence"`
	// Owner is the message that made the newest claim.
	Owner *Owner `json:"owner"`
	// LeaseLeftMS is only set for a key in flight. It is negative when the lease has lapsed.
	LeaseLeftMS *int64 `json:"lease_left_ms"`
	// ClaimedMS is how long ago the newest claim was won. FirstSeenMS is the same for the first
	// claim; it is known only if there was no other. DoneMS is how long ago the key ended. KeptMS
	// is how much longer the store remembers it.
	ClaimedMS   *int64 `json:"claimed_ms_ago"`
	FirstSeenMS *int64 `json:"first_seen_ms_ago"`
	DoneMS      *int64 `json:"done_ms_ago"`
	KeptMS      *int64 `json:"kept_ms"`
	// Irreversible says that the irreversible part of the effect may have begun.
	Irreversible bool   `json:"irreversible"`
	Fingerprint  string `json:"fingerprint,omitempty"`
	Label        string `json:"label,omitempty"`
	StepsBytes   int    `json:"steps_bytes,omitempty"`
	// ResultBytes is null when there is no result. Preview is the beginning of the result, quoted
	// like a Go string.
	ResultBytes *int   `json:"result_bytes"`
	Preview     string `json:"result_preview,omitempty"`
	// NoResult reports that there was a result which the store did not keep.
	NoResult bool `json:"result_not_kept"`

	// member is set if only this is known: the key is done. mark is set if the record is a mark,
	// which has no claim.
	member, mark bool
	id           driver.ID
	record       dedup.Record // as the user saw it
}

// Owner is where the message of a claim came from.
type Owner struct {
	// Source is the text behind SourceDigest, if it is known: "group/topic" for a message in Kafka,
	// the scope for one in a queue.
	Source       string `json:"source,omitempty"`
	SourceDigest string `json:"source_digest"`
	Partition    int32  `json:"partition"`
	Offset       int64  `json:"offset"`
	Generation   int32  `json:"generation"`
}

func digestText(o driver.Origin) string { return fmt.Sprintf("%016x", o.Digest()) }

// is sets Source if the digest is that of source, and reports whether it is.
func (o *Owner) is(source string) bool {
	if o == nil || source == "" || digestText(driver.Origin{Source: source}) != o.SourceDigest {
		return false
	}
	o.Source = source
	return true
}

// name sets Source if the flags name the source with this digest.
func (o *Owner) name(of *Options) {
	if !o.is(of.Scope) && of.clue.at != nil {
		o.is(of.group + "/" + of.clue.at.topic)
	}
}

// fenceTicks is the number of fences per millisecond: a claim's fence is the store's time when the
// claim was won, or a little more.
const fenceTicks = 1024

// maxPreview is how many bytes of a result are shown.
const maxPreview = 200

// view makes a View of a record. now is the store's time.
func (s *store) view(id driver.ID, r *dedup.Record, now time.Time) View {
	v := View{
		ID: hex.EncodeToString(id[:]), Store: s.Name, State: r.State.String(),
		Irreversible: r.Irreversible, Label: r.Label, StepsBytes: len(r.Steps),
		NoResult: r.NoResult, mark: s.marks != nil, id: id, record: *r,
		member: s.Layout == redisadapter.Compact &&
			r.State == driver.StateSucceeded && r.Fence == 0,
	}
	left := r.Remaining.Milliseconds()
	switch {
	case r.State == driver.StateAbsent:
		return v
	case r.State == driver.StateInProgress:
		v.LeaseLeftMS = &left
	case !v.mark:
		v.KeptMS = &left
	}
	if v.member {
		return v
	}
	if r.State == driver.StateSucceeded || r.State == driver.StateFailed {
		v.DoneMS = new(r.Age.Milliseconds())
	}
	if r.Fingerprint != (driver.Fingerprint{}) {
		v.Fingerprint = hex.EncodeToString(r.Fingerprint[:])
	}
	if r.Result != nil {
		v.ResultBytes = new(len(r.Result))
	}
	if !v.mark {
		v.claim(r, now)
	}
	return v
}

// claim sets the fields about the newest claim.
func (v *View) claim(r *dedup.Record, now time.Time) {
	v.Attempt, v.Fence = new(r.Attempt), new(r.Fence)
	if r.Origin != (driver.Origin{}) {
		v.Owner = &Owner{SourceDigest: digestText(r.Origin), Partition: r.Origin.Partition,
			Offset: r.Origin.Offset, Generation: r.Origin.Generation}
	}
	if r.Fence == 0 {
		return // recorded without a claim
	}
	v.ClaimedMS = new(max(now.UnixMilli()-int64(r.Fence/fenceTicks), 0))
	if r.Attempt == 1 {
		v.FirstSeenMS = v.ClaimedMS
	}
}

// preview sets the beginning of a result.
func (v *View) preview(result []byte) {
	if result == nil {
		return
	}
	v.Preview = strconv.Quote(string(result[:min(len(result), maxPreview)]))
	if len(result) > maxPreview {
		v.Preview += "..."
	}
}

// styles mark the states that an operator has to act on.
var styles = map[string]cli.Style{
	driver.StateUncertain.String(): cli.Yellow, driver.StateFailed.String(): cli.Red,
}

// print writes a table for people.
func (v *View) print(s *cli.Streams, name string) error {
	all := [][2]string{{"key", name}, {"id", v.ID}, {"store", v.Store},
		{"state", s.Paint(styles[v.State], v.State)}}
	if v.State == driver.StateAbsent.String() {
		return s.Fields(all...)
	}
	missing := "not kept"
	switch {
	case v.member:
		missing += " (" + redisadapter.Compact.String() + ")"
	case v.mark:
		missing += " (mark)"
	}
	line := func(shown bool, what, value string) {
		if shown {
			all = append(all, [2]string{what, value})
		}
	}
	line(v.FoundBy != "", "found by", v.FoundBy)
	line(true, "attempt", or(v.Attempt, missing))
	line(true, "fence", or(v.Fence, missing))
	line(true, "owner", v.owner(missing))
	line(v.LeaseLeftMS != nil, "lease", lease(v.LeaseLeftMS))
	line(true, "first seen", ago(v.FirstSeenMS, missing))
	line(true, "claimed", ago(v.ClaimedMS, missing))
	line(v.DoneMS != nil || v.member, "done", ago(v.DoneMS, missing))
	if v.KeptMS != nil {
		line(true, "kept for", short(*v.KeptMS))
	}
	line(v.Irreversible, "irreversible", "the irreversible part may have begun")
	line(v.StepsBytes > 0, "steps", fmt.Sprintf("%d bytes", v.StepsBytes))
	line(true, "fingerprint", text(v.Fingerprint, v.member, missing))
	line(true, "label", text(strconv.Quote(v.Label), v.member || v.mark, missing))
	line(true, "result", v.result(missing))
	return s.Fields(all...)
}

func (v *View) owner(missing string) string {
	switch {
	case v.Owner != nil:
		source := "source " + v.Owner.SourceDigest
		if group, topic, ok := strings.Cut(v.Owner.Source, "/"); ok {
			source = fmt.Sprintf("group %s, topic %s", group, topic)
		} else if v.Owner.Source != "" {
			source = v.Owner.Source
		}
		return fmt.Sprintf("%s, partition %d, offset %d, generation %d",
			source, v.Owner.Partition, v.Owner.Offset, v.Owner.Generation)
	case v.member || v.mark:
		return missing
	}
	return "not told"
}

func (v *View) result(missing string) string {
	switch {
	case v.member || v.NoResult:
		return missing
	case v.ResultBytes == nil:
		return "none"
	case v.Preview == "":
		return fmt.Sprintf("%d bytes (--result shows them)", *v.ResultBytes)
	}
	return fmt.Sprintf("%d bytes: %s", *v.ResultBytes, v.Preview)
}

// text returns a text, which may be quoted, unless it is empty.
func text(s string, lost bool, missing string) string {
	switch {
	case s != "" && s != `""`:
		return s
	case lost:
		return missing
	}
	return "none"
}

func or[T any](v *T, missing string) string {
	if v == nil {
		return missing
	}
	return fmt.Sprint(*v)
}

func ago(ms *int64, missing string) string {
	if ms == nil {
		return missing
	}
	return short(*ms) + " ago"
}

// lease says how long a lease lasts, or how long ago it has lapsed.
func lease(left *int64) string {
	switch {
	case left == nil:
		return "-"
	case *left <= 0:
		return "lapsed " + short(-*left) + " ago"
	}
	return short(*left) + " left"
}

// short formats a duration with the precision that people want.
func short(ms int64) string { return cli.Round(time.Duration(ms) * time.Millisecond).String() }
