package console

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// maxForm bounds the body of a form, in bytes.
const maxForm = 16 << 10

// maxShown is how many bytes of a text of Options.ShowResult are shown.
const maxShown = 4 << 10

// record is what a page shows of a key.
type record struct {
	ID, State string
	// Key, Namespace and Scope are shown to the person who has just typed them in.
	Key, Namespace, Scope string
	// Plain reports that a key was typed in without the details that give a key its scope.
	Plain bool
	Rows  []field
	Text  string // of ShowResult
	Cut   bool
	// Uncertain and Forgettable say which changes are possible.
	Uncertain, Forgettable bool
	// Resolve is a link; the name of the change is appended.
	Resolve string
	Journal []entry
}

// field is one line about a key.
type field struct{ Name, Value, Note string }

// look reads the record of one key.
func (c *Console) look(ctx context.Context, id driver.ID) (dedup.Record, error) {
	a := c.options.Store.Lookup(ctx, []driver.ID{id})[0]
	return a.Record, a.Err
}

// view returns what the page shows of a record.
func (c *Console) view(id driver.ID, r *dedup.Record) record {
	v := record{ID: hex.EncodeToString(id[:]), State: r.State.String()}
	v.Resolve = "change?id=" + v.ID + "&do="
	v.Journal = c.journal.newest(v.ID)
	if r.State == driver.StateAbsent {
		return v
	}
	v.Uncertain = r.State == driver.StateUncertain
	v.Forgettable = !v.Uncertain && (r.State != driver.StateInProgress || r.Remaining <= 0)
	add := func(name, value, note string) { v.Rows = append(v.Rows, field{name, value, note}) }
	// without a claim and an age, nothing else is kept
	if r.State == driver.StateSucceeded && r.Fence == 0 && r.Age == 0 {
		add("remembered for", short(r.Remaining), "")
		add("everything else", "not kept",
			"the layout of the store remembers only that the key is done")
		return v
	}
	v.claim(r)
	switch {
	case r.State == driver.StateInProgress:
		add("lease", lease(r), "")
	case r.Age > 0:
		add("done", short(r.Age)+" ago", "by the store's clock")
		fallthrough
	default:
		add("remembered for", short(r.Remaining), "")
	}
	if r.Irreversible && !v.Uncertain {
		add("irreversible", "the irreversible part may have begun", "")
	}
	if n := len(r.Steps); n > 0 {
		add("steps", grouped(uint64(n))+" bytes", "sub-effects that a rerun skips")
	}
	if r.Fingerprint != (driver.Fingerprint{}) {
		add("fingerprint", hex.EncodeToString(r.Fingerprint[:]), "")
	}
	if r.Label != "" {
		add("label", strconv.Quote(r.Label), "")
	}
	c.result(&v, id, r)
	return v
}

// claim adds the rows of the newest claim.
func (v *record) claim(r *dedup.Record) {
	add := func(name, value, note string) { v.Rows = append(v.Rows, field{name, value, note}) }
	add("attempt", strconv.Itoa(r.Attempt), "claims so far")
	if at, ok := claimedAt(r.Fence); ok {
		add("claimed", at.UTC().Format(instant), ago(at)+", the newest claim")
		add("fence", strconv.FormatUint(r.Fence, 10), "")
	} else if r.Fence == 0 {
		add("fence", "none", "recorded without a claim")
	} else {
		add("fence", strconv.FormatUint(r.Fence, 10), "")
	}
	if r.Origin != (driver.Origin{}) {
		add("owner", owner(r), "the message of the newest claim")
	}
}

func owner(r *dedup.Record) string {
	if r.Origin == (driver.Origin{}) {
		return "not told"
	}
	return fmt.Sprintf("source %016x, %s, generation %d", r.Origin.Digest(), place(r),
		r.Origin.Generation)
}

// place returns the position of the newest claim's message in its source.
func place(r *dedup.Record) string {
	return fmt.Sprintf("partition %d, offset %d", r.Origin.Partition, r.Origin.Offset)
}

func lease(r *dedup.Record) string {
	if r.Remaining <= 0 {
		return "lapsed " + short(-r.Remaining) + " ago"
	}
	return short(r.Remaining) + " left"
}

// result adds the row of a result: the text of ShowResult, or the result's length.
func (c *Console) result(v *record, id driver.ID, r *dedup.Record) {
	name := "result"
	if r.State == driver.StateFailed {
		name = "error"
	}
	add := func(value, note string) { v.Rows = append(v.Rows, field{name, value, note}) }
	switch {
	case r.NoResult:
		add("not kept", "there was one, too large or of no encoding")
	case r.Result == nil:
		if r.State == driver.StateSucceeded || r.State == driver.StateFailed {
			add("none", "")
		}
	case c.options.ShowResult == nil:
		add(grouped(uint64(len(r.Result)))+" bytes", "not shown here")
	default:
		add(grouped(uint64(len(r.Result)))+" bytes", "shown below as the program allows")
		v.Text, v.Cut = cut(c.options.ShowResult(id, r.Result))
	}
}

// cut ends a long text after a whole character, and replaces bytes that are not UTF-8.
func cut(s string) (string, bool) {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= maxShown {
		return s, false
	}
	end := maxShown
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], true
}

// key shows a record by its ID.
func (c *Console) key(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	return c.show(w, r, id, record{})
}

// show writes the page of a key, with the fields that were typed in.
func (c *Console) show(w http.ResponseWriter, r *http.Request, id driver.ID, typed record) error {
	found, err := c.look(r.Context(), id)
	if err != nil {
		return err
	}
	v := c.view(id, &found)
	v.Key, v.Namespace, v.Scope, v.Plain = typed.Key, typed.Namespace, typed.Scope, typed.Plain
	status := http.StatusOK
	if found.State == driver.StateAbsent {
		status = http.StatusNotFound
	}
	title := "Key"
	if found.Label != "" {
		title = labelOf(&found)
	}
	return c.write(w, r, status, "record", title, v)
}

func parseID(text string) (driver.ID, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(driver.ID{}) {
		return driver.ID{}, &refusal{http.StatusBadRequest, "This is not an ID",
			"An ID has 32 hex digits."}
	}
	return driver.ID(b), nil
}

func readForm(w http.ResponseWriter, r *http.Request, size int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, size)
	if err := r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form could not be read",
			"Go back, and send it again."}
	}
	return nil
}
