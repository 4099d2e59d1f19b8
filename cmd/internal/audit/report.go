package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/plan"
	"github.com/onceward/onceward/redisadapter"
)

// Report is the result of the command, and its form in JSON. Shares are parts of all messages,
// where 1 stands for all, unless a field says otherwise.
type Report struct {
	Source   string    `json:"source"`
	ID       string    `json:"id"`
	Messages uint64    `json:"messages"`
	From     time.Time `json:"from,omitzero"` // by the messages' own clocks
	To       time.Time `json:"to,omitzero"`
	// Complete says that the whole source was read, up to its end when the command began.
	Complete bool `json:"complete"`
	// SampledOneIn is N if one id in N was counted: 1 is an exact count.
	SampledOneIn uint64 `json:"sampled_one_in"`

	Duplicates     uint64  `json:"duplicates"`
	DuplicateShare float64 `json:"duplicate_share"`
	Causes         []Count `json:"causes"`
	Ages           []Bar   `json:"ages"`
	Half           int64   `json:"age_p50_ms"`
	Most           int64   `json:"age_p999_ms"`
	Longest        int64   `json:"age_max_ms"`

	Bad BadIDs `json:"bad_ids"`

	// WindowMS covers twice the longest age that was seen. 0: no duplicate had a time.
	WindowMS int64      `json:"window_ms,omitempty"`
	Plan     *plan.Plan `json:"plan,omitempty"` // nil: there is no rate
}

// Count is the part of the duplicates with one cause.
type Count struct {
	Name  string  `json:"name"`
	Count uint64  `json:"count"`
	Share float64 `json:"share"` // of the duplicates
}

// BadIDs counts ids that cannot be keys as they are.
type BadIDs struct {
	// Missing counts messages without an id, Untimed those without a time.
	Missing uint64 `json:"missing"`
	Untimed uint64 `json:"untimed"`
	// Reused counts ids that stand for several payloads, ReusedMessages their messages.
	Reused         uint64    `json:"reused"`
	ReusedMessages uint64    `json:"reused_messages"`
	ReusedExamples []Example `json:"reused_examples,omitempty"`
	// Remade counts messages whose payload was already seen under another id.
	Remade         uint64    `json:"remade_messages"`
	RemadeExamples []Example `json:"remade_examples,omitempty"`
}

// Uncounted says why there was nothing to count, and is empty if there was something. Where no id
// was found, "no duplicates" would be wrong.
func (r *Report) Uncounted() string {
	switch {
	case r.Messages == 0:
		return "none were counted: there are no messages"
	case r.Bad.Missing == r.Messages:
		return "not known: no message has an id there. Set --id, or --pattern for a file whose " +
			"lines are not JSON"
	}
	return ""
}

// report makes the report of what was counted.
func (t *tally) report(o *Options, complete bool) *Report {
	r := &Report{Source: o.source(),
		ID:       cmp.Or(o.ID, "header message-id or idempotency-key, or CloudEvents"),
		Messages: t.Messages, Complete: complete,
		SampledOneIn: t.weight(), Duplicates: t.Duplicates,
		DuplicateShare: share(t.Duplicates, t.Messages), Causes: t.causes(), Ages: t.Ages.bars(),
		// a class of ages has a width: its upper end may be later than the longest age
		Half:    min(t.Ages.within(0.5).Milliseconds(), t.Longest),
		Most:    min(t.Ages.within(0.999).Milliseconds(), t.Longest),
		Longest: t.Longest, Bad: t.BadIDs}
	if t.First != 0 {
		r.From, r.To = time.UnixMilli(t.First).UTC(), time.UnixMilli(t.Last).UTC()
	}
	if len(r.Ages) > 0 {
		r.WindowMS = windowFor(span(r.Longest)).Milliseconds()
	}
	r.Plan = t.plan(r)
	return r
}

func (t *tally) causes() (all []Count) {
	for c, n := range t.Causes {
		all = append(all, Count{Name: string(c), Count: n, Share: share(n, t.Duplicates)})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// plan computes the memory that the window needs at the measured rate of messages. There is no rate
// if the messages cover less than a second.
func (t *tally) plan(r *Report) *plan.Plan {
	seconds := float64(t.Last-t.First) / 1e3
	if r.WindowMS == 0 || seconds < 1 {
		return nil
	}
	p, err := plan.New(plan.Options{Rate: float64(t.Messages) / seconds, Window: span(r.WindowMS),
		Dup: min(r.DuplicateShare, 0.999), Prefix: redisadapter.DefaultPrefix,
		Spare: plan.DefaultSpare, FalsePositives: plan.DefaultFalsePositives})
	if err != nil { // more than one deployment can remember
		return nil
	}
	return &p
}

func share(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
