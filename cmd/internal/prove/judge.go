package prove

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// Report is the result, and its form in JSON.
type Report struct {
	Program    []string `json:"program"`
	Seed       uint64   `json:"seed"`
	Messages   int      `json:"messages"`
	Deliveries int      `json:"deliveries"`
	Kills      int      `json:"kills"`
	// Once counts messages that had their effect exactly once.
	Once    int      `json:"once"`
	Lost    []Wrong  `json:"lost"`
	Doubled []Wrong  `json:"doubled"`
	Unsent  []string `json:"unacknowledged"`
	// Foreign counts effects of ids that were not sent.
	Foreign int `json:"foreign"`
}

// Wrong is a message that was lost or doubled.
type Wrong struct {
	ID      string `json:"id"`
	Effects int    `json:"effects"`
	// Kills are the numbers, from 1, of the kills that happened while the program worked on the
	// message.
	Kills []int `json:"kills"`
}

// Right reports whether every message had its effect once.
func (r *Report) Right() bool {
	return r.Once == r.Messages && len(r.Unsent) == 0
}

// judge compares the acknowledged messages with their effects.
func judge(ids []string, deliveries []delivery, done *effects, kills []time.Time) *Report {
	r := &Report{Messages: len(ids), Deliveries: len(deliveries), Kills: len(kills),
		Lost: []Wrong{}, Doubled: []Wrong{}, Unsent: []string{}, Foreign: done.foreign}
	of := map[string][]delivery{}
	for _, d := range deliveries {
		of[d.id] = append(of[d.id], d)
	}
	for _, id := range ids {
		acknowledged := slices.ContainsFunc(of[id], func(d delivery) bool { return d.ok })
		n := len(done.at[id])
		wrong := Wrong{ID: id, Effects: n, Kills: killsOf(of[id], done.at[id], kills)}
		switch {
		case n > 1:
			r.Doubled = append(r.Doubled, wrong)
		case !acknowledged:
			r.Unsent = append(r.Unsent, id)
		case n == 0:
			r.Lost = append(r.Lost, wrong)
		default:
			r.Once++
		}
	}
	return r
}

// killsOf returns the kills during an unacknowledged delivery, or between two effects.
func killsOf(deliveries []delivery, effects, kills []time.Time) (numbers []int) {
	numbers = []int{}
	for _, d := range deliveries {
		if !d.ok {
			numbers = append(numbers, killsIn(kills, d.begun, d.end)...)
		}
	}
	if len(effects) > 1 {
		numbers = append(numbers, killsIn(kills, effects[0], effects[len(effects)-1])...)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

const examples = 5

// print writes the report for people.
func (r *Report) print(s *cli.Streams) error {
	rows := [][]string{
		{"once", fmt.Sprint(r.Once), ""},
		{"lost", fmt.Sprint(len(r.Lost)), describe(r.Lost)},
		{"doubled", fmt.Sprint(len(r.Doubled)), describe(r.Doubled)},
		{"not acknowledged", fmt.Sprint(len(r.Unsent)),
			strings.Join(r.Unsent[:min(examples, len(r.Unsent))], ", ")},
	}
	if r.Foreign > 0 {
		rows = append(rows, []string{"effects of other ids", fmt.Sprint(r.Foreign), ""})
	}
	if err := s.Lines(0, fmt.Sprintf("%s: %d messages in %d deliveries, %d kills, --seed %d",
		strings.Join(r.Program, " "), r.Messages, r.Deliveries, r.Kills, r.Seed)); err != nil {
		return err
	}
	if err := s.Table([]string{"effect", "messages", "examples"}, rows); err != nil {
		return err
	}
	style, summary := cli.Green, "Every message had its effect once."
	if !r.Right() {
		style, summary = cli.Red, r.summary()
	}
	return s.Lines(0, s.Paint(style, summary))
}

func (r *Report) summary() string {
	var all []string
	add := func(what string, wrong []Wrong) {
		if len(wrong) == 0 {
			return
		}
		alone := 0
		for _, w := range wrong {
			if len(w.Kills) == 0 {
				alone++
			}
		}
		text := fmt.Sprintf("The program %s messages", what)
		if alone > 0 {
			text += fmt.Sprintf(", %d of them without a kill", alone)
		}
		all = append(all, text+".")
	}
	switch {
	case r.Once+len(r.Doubled) > 0:
		add("loses", r.Lost)
		add("doubles", r.Doubled)
	case r.Foreign > 0:
		all = append(all, "No effect has the id of a message: report the Idempotency-Key, or the "+
			"message-id of a topic, as it was sent.")
	default:
		all = append(all, "No effect was seen: the program has to POST each of them to "+
			"$EFFECTS_URL?id=ID, or --count COMMAND has to print their ids.")
	}
	if len(r.Unsent) > 0 {
		all = append(all, "The program leaves messages without an answer.")
	}
	return strings.Join(all, " ")
}

// describe lists the first of these messages.
func describe(all []Wrong) string {
	var texts []string
	for _, w := range all[:min(examples, len(all))] {
		text := w.ID
		switch len(w.Kills) {
		case 0:
			text += " (no kill)"
		case 1:
			text += fmt.Sprintf(" (kill %d)", w.Kills[0])
		default:
			text += fmt.Sprintf(" (kills %s)", strings.Trim(fmt.Sprint(w.Kills), "[]"))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
