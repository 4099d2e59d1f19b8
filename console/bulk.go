package console

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

const (
	// maxBulk is how many keys one question is about. A person can still look over that many keys,
	// and the program can change them while the browser waits.
	maxBulk = 500
	// maxBulkForm bounds the form, in bytes: a key has about 120.
	maxBulkForm = 256 << 10
)

// phrases are words that a person must type in before many keys are changed, so that neither a
// stray click nor the habit of answering the other question changes them.
var phrases = map[string]string{doDone: "it happened", doReleased: "may run again"}

var errNoBulk = &refusal{http.StatusBadRequest, "This cannot be done",
	"Uncertain keys are resolved as done or released."}

// bulkQuestion is asked before many keys are changed.
type bulkQuestion struct {
	Do, Means, Phrase  string
	Keys               []offered
	More               bool // other keys match
	Window, Who, Fault string
}

// offered is a key that the page shows ticked. Value holds the key's ID, its fence, and a token.
type offered struct {
	listed
	Value string
}

// bulk asks about all uncertain keys that match a filter, by GET, and resolves those that were
// confirmed, by POST.
func (c *Console) bulk(w http.ResponseWriter, r *http.Request) error {
	return c.changing(w, r, maxBulkForm, c.askBulk, c.confirmedBulk)
}

func (c *Console) askBulk(w http.ResponseWriter, r *http.Request, who string) error {
	q := r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	lister, ok := c.options.Store.(Lister)
	if !ok {
		return &refusal{http.StatusNotFound, "This store cannot list its keys",
			"Search for one key at a time."}
	}
	got, err := c.uncertainKeys(r.Context(), lister, reach{}, listTime, &f)
	if err != nil {
		return err
	}
	return c.bulkQuestion(w, r, http.StatusOK, got, bulkQuestion{Do: q.Get("do"), Who: who,
		Window: c.window()})
}

// bulkQuestion shows the keys in their current state, and binds the answer to that state.
func (c *Console) bulkQuestion(w http.ResponseWriter, r *http.Request, status int, got keyList,
	q bulkQuestion) error {
	q.Phrase, q.Means = phrases[q.Do], words[q.Do].means
	switch {
	case q.Phrase == "":
		return errNoBulk
	case len(got.Keys) == 0:
		return &refusal{http.StatusNotFound, "No uncertain key matches", "Nothing is to be done."}
	}
	session := c.session(w, r)
	q.More = len(got.Keys) > maxBulk || got.Next != ""
	for _, l := range got.Keys[:min(len(got.Keys), maxBulk)] {
		fence := strconv.FormatUint(l.record.Fence, 10)
		token := c.token(time.Now(), session, q.Who, q.Do, l.ID,
			driver.StateUncertain.String(), fence)
		q.Keys = append(q.Keys, offered{l, l.ID + " " + fence + " " + token})
	}
	title := "They happened: record " + strconv.Itoa(len(q.Keys)) + " as done?"
	if q.Do == doReleased {
		title = "They did not happen: may " + strconv.Itoa(len(q.Keys)) + " run again?"
	}
	return c.write(w, r, status, "bulk", title, q)
}

// resolved is the page with the result of a change of many keys.
type resolved struct {
	Done    string
	Changed int
	Left    []left
}

// left is a key that was not changed, or may not have been.
type left struct{ ID, Why string }

// confirmedBulk resolves the keys of a form that this console has made.
func (c *Console) confirmedBulk(w http.ResponseWriter, r *http.Request, who string) error {
	form := r.PostForm
	do := form.Get("do")
	if phrases[do] == "" {
		return errNoBulk
	}
	ids, fences, err := c.ticked(r, who, do)
	if err != nil {
		return err
	}
	window, err := windowOf(do, form.Get("window"))
	var fault string
	switch {
	case err != nil:
		fault = err.Error()
	case strings.TrimSpace(form.Get("confirm")) != phrases[do]:
		fault = fmt.Sprintf("Nothing was changed: the text that was typed is not %q.", phrases[do])
	}
	answers := c.options.Store.Lookup(r.Context(), ids)
	if fault != "" {
		var again keyList
		for i, a := range answers {
			if a.Err == nil && a.Record.State == driver.StateUncertain {
				again.Keys = append(again.Keys, listedOf(ids[i], &a.Record))
			}
		}
		return c.bulkQuestion(w, r, http.StatusBadRequest, again,
			bulkQuestion{Do: do, Who: who, Window: form.Get("window"), Fault: fault})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), c.options.Timeout)
	defer cancel()
	out := resolved{Done: words[do].log}
	for i, id := range ids {
		ch := change{id: id, do: do, who: who, window: window, was: answers[i].Record}
		if why := c.resolveOne(ctx, r, &ch, answers[i].Err, fences[i]); why != "" {
			out.Left = append(out.Left, left{hex.EncodeToString(id[:]), why})
		} else {
			out.Changed++
		}
	}
	return c.write(w, r, http.StatusOK, "resolved", "Changed", out)
}

// ticked reads the keys of a form, and the fences with which they were shown.
func (c *Console) ticked(r *http.Request, who, do string) (ids []driver.ID, fences []string,
	err error) {
	for _, value := range r.PostForm["key"] {
		id, rest, _ := strings.Cut(value, " ")
		fence, token, _ := strings.Cut(rest, " ")
		if err := c.given(r, token, who, do, id, driver.StateUncertain.String(),
			fence); err != nil {
			return nil, nil, err
		}
		parsed, err := parseID(id)
		if err != nil {
			return nil, nil, err
		}
		ids, fences = append(ids, parsed), append(fences, fence)
	}
	if len(ids) == 0 {
		return nil, nil, &refusal{http.StatusBadRequest, "No key was ticked",
			"Nothing was changed. Go back, and tick those that are meant."}
	}
	return ids, fences, nil
}

// resolveOne changes a key if it is still as it was shown. Otherwise it returns why it did not
// change the key.
func (c *Console) resolveOne(ctx context.Context, r *http.Request, ch *change, err error,
	fence string) (why string) {
	switch {
	case ctx.Err() != nil:
		return "left as it is: the time was up"
	case err != nil:
		return "left as it is: " + c.options.ShowError(err)
	case ch.was.State != driver.StateUncertain ||
		strconv.FormatUint(ch.was.Fence, 10) != fence:
		return "left as it is: it has changed meanwhile"
	}
	switch _, err := c.settleAndLog(ctx, r, ch); {
	case errors.Is(err, errMoved):
		return "left as it is: it has changed meanwhile"
	case err != nil:
		return "it is not known whether it was changed: " + c.options.ShowError(err)
	}
	return ""
}
