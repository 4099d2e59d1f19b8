package console

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/settle"
)

// Changes that people may make to a key.
const (
	doDone     = "done"     // an uncertain key: its effect has happened
	doReleased = "released" // an uncertain key: it has not, and may run again
	doForget   = "forget"
)

// question is what is asked before a change.
type question struct {
	Key                 record
	Do, Ask, Yes, Means string
	Window              string // empty where none is wanted
	WantsWindow         bool
	Token, Who          string
	Fence               string
	Fault               string
}

// words are the texts of a question, and the name of the change in the log.
var words = map[string]struct{ ask, yes, means, log string }{
	doDone: {
		"It happened: record it as done?", "Yes, record it as done",
		"Ask the downstream first. The key becomes succeeded, without a result, and duplicates are skipped from now on. Nothing runs.", "resolved as done",
	},
	doReleased: {
		"It did not happen: may it run again?", "Yes, let it run again",
		"Ask the downstream first. The next message with this key runs the effect. If it happened after all, that is a second time.", "resolved as released",
	},
	doForget: {
		"Forget this key, so that its effect may run again?", "Yes, forget it",
		"The next message with this key runs its effect once more. A result that is stored is gone.", "forgotten",
	},
}

// change asks about one key, by GET, and makes the change that was confirmed, by POST.
func (c *Console) change(w http.ResponseWriter, r *http.Request) error {
	return c.changing(w, r, maxForm, c.ask, c.confirmed)
}

// changing lets through only a person who may make a change, and a confirmation only if it comes
// with a form of this console.
func (c *Console) changing(w http.ResponseWriter, r *http.Request, size int64,
	ask, confirmed func(http.ResponseWriter, *http.Request, string) error) error {
	if !c.options.AllowChanges {
		c.refused(r, "", "read only")
		return &refusal{http.StatusForbidden, "This console is read only",
			"The program that serves it allows no changes."}
	}
	who, err := c.who(r)
	if err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		return ask(w, r, who)
	}
	// Check the origin of the request before reading anything from it.
	if err := c.cross.Check(r); err != nil {
		return c.foreign(r, err)
	}
	if err := readForm(w, r, size); err != nil {
		return err
	}
	return confirmed(w, r, who)
}

func (c *Console) who(r *http.Request) (string, error) {
	if c.options.Authorize == nil {
		return "", nil
	}
	who, err := c.options.Authorize(r)
	if err != nil {
		c.refused(r, who, "not authorized", "error", err)
		return "", &refusal{http.StatusForbidden, "You may not change keys here",
			"Ask whoever runs this program for the right to."}
	}
	return who, nil
}

// foreign refuses a form that came from a page of another site.
func (c *Console) foreign(r *http.Request, err error) error {
	c.refused(r, "", "another site's form", "error", err)
	return &refusal{http.StatusForbidden, "This came from another site",
		"Nothing was changed. Use the pages of this console alone."}
}

func (c *Console) refused(r *http.Request, who, why string, more ...any) {
	c.options.Logger.WarnContext(r.Context(), "console: refused",
		append([]any{"why", why, "who", who, "remote", r.RemoteAddr, "method", r.Method},
			more...)...)
}

// ask is the page with the question.
func (c *Console) ask(w http.ResponseWriter, r *http.Request, who string) error {
	query := r.URL.Query()
	id, err := parseID(query.Get("id"))
	if err != nil {
		return err
	}
	return c.question(w, r, http.StatusOK, id, query.Get("do"), who, "")
}

// question shows the key in its current state, and binds the answer to that state.
func (c *Console) question(w http.ResponseWriter, r *http.Request, status int, id driver.ID,
	do, who, fault string) error {
	found, err := c.look(r.Context(), id)
	if err != nil {
		return err
	}
	if err := fits(do, &found); err != nil {
		return err
	}
	q := question{
		Key: c.view(id, &found), Do: do, Ask: words[do].ask, Yes: words[do].yes,
		Means: words[do].means, Who: who,
		WantsWindow: do == doDone, Fence: strconv.FormatUint(found.Fence, 10), Fault: fault,
	}
	q.Key.Text = "" // a question needs no result
	if q.WantsWindow {
		q.Window = r.PostFormValue("window")
		if q.Window == "" {
			q.Window = c.window()
		}
	}
	q.Token = c.token(time.Now(), c.session(w, r), who, do, q.Key.ID, found.State.String(), q.Fence)
	return c.write(w, r, status, "change", words[do].ask, q)
}

// window is Options.Window as it would be typed in, such as 72h.
func (c *Console) window() string {
	if c.options.Window == 0 {
		return ""
	}
	return without(without(c.options.Window.String(), "0s"), "0m")
}

// fits refuses a change that a key in this state cannot have.
func fits(do string, r *dedup.Record) error {
	switch {
	case words[do].ask == "":
		return &refusal{http.StatusBadRequest, "This cannot be done",
			"A key is resolved as done or released, or forgotten."}
	case r.State == driver.StateAbsent:
		return &refusal{http.StatusNotFound, "There is no record of this key",
			"It was never seen, is forgotten, or its window is over."}
	case do == doForget && r.State == driver.StateInProgress && r.Remaining > 0:
		return &refusal{http.StatusConflict, "The key is in flight",
			"Somebody works on it. It is left as it is."}
	case do != doForget && r.State != driver.StateUncertain:
		return &refusal{http.StatusConflict, "The key is not uncertain",
			"It is " + r.State.String() + ", and left as it is."}
	}
	return nil
}

// confirmed makes the change that a page of this console has asked about.
func (c *Console) confirmed(w http.ResponseWriter, r *http.Request, who string) error {
	form := r.PostForm
	do, state, fence := form.Get("do"), form.Get("state"), form.Get("fence")
	id, err := parseID(form.Get("id"))
	if err != nil {
		return err
	}
	if err := c.given(r, form.Get("token"), who, do, hex.EncodeToString(id[:]), state,
		fence); err != nil {
		return err
	}
	window, err := windowOf(do, form.Get("window"))
	if err != nil {
		return c.question(w, r, http.StatusBadRequest, id, do, who, err.Error())
	}
	found, err := c.look(r.Context(), id)
	switch {
	case err != nil:
		return err
	case found.State.String() != state || strconv.FormatUint(found.Fence, 10) != fence:
		return errMoved
	}
	if err := fits(do, &found); err != nil {
		return err
	}
	return c.carryOut(w, r, change{id: id, do: do, who: who, window: window, was: found})
}

// given refuses a form that this console did not give to this browser for this change, or gave too
// long ago.
func (c *Console) given(r *http.Request, token, who, do, id, state, fence string) error {
	session := sessionOf(r)
	genuine, fresh := c.genuine(time.Now(), token, session, who, do, id, state, fence)
	switch {
	case session == "" || !genuine:
		c.refused(r, who, "no genuine token", "id", id)
		return &refusal{http.StatusForbidden, "The form was not given to this browser",
			"Nothing was changed. Open the page again; cookies are needed."}
	case !fresh:
		c.refused(r, who, "an old token", "id", id)
		return &refusal{http.StatusForbidden, "The question was asked too long ago",
			"Nothing was changed. Open the page again."}
	}
	return nil
}

// errMoved: somebody else was faster.
var errMoved = &refusal{http.StatusConflict, "The key has changed meanwhile",
	"Nothing was changed. Open it again and look."}

// maxWindow is far above every sensible window.
const maxWindow = 10 * 365 * day

func windowOf(do, text string) (time.Duration, error) {
	if do != doDone {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("The time must be written as 72h or 90m.") //nolint:revive,staticcheck // a sentence of the page
	case d <= 0 || d > maxWindow:
		return 0, fmt.Errorf("The time must be positive, and at most %v.", maxWindow) //nolint:revive,staticcheck // a sentence of the page
	}
	return d, nil
}

// change is a change that was confirmed.
type change struct {
	id     driver.ID
	do     string
	who    string
	window time.Duration
	was    dedup.Record
}

// outcome is the page with the result of one change.
type outcome struct{ ID, Was, Is, Done string }

// carryOut makes the whole change, even if the browser leaves.
func (c *Console) carryOut(w http.ResponseWriter, r *http.Request, ch change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), c.options.Timeout)
	defer cancel()
	is, err := c.settleAndLog(ctx, r, &ch)
	if err != nil {
		return err
	}
	return c.write(w, r, http.StatusOK, "changed", "Changed", outcome{
		hex.EncodeToString(ch.id[:]), ch.was.State.String(), is.String(), words[ch.do].log})
}

// settleAndLog makes the change, and notes it in the log and the journal.
func (c *Console) settleAndLog(ctx context.Context, r *http.Request,
	ch *change) (driver.State, error) {
	is, err := c.settle(ctx, ch)
	name := hex.EncodeToString(ch.id[:])
	log := []any{"who", ch.who, "do", ch.do, "id", name, "was", ch.was.State.String(), "remote",
		r.RemoteAddr}
	if err != nil {
		c.options.Logger.WarnContext(ctx, "console: not changed, or not known whether",
			append(log, "error", err)...)
		return is, err
	}
	c.options.Logger.InfoContext(ctx, "console: changed", append(log, "is", is.String())...)
	c.journal.add(ch, name, words[ch.do].log)
	return is, nil
}

// settle makes the change and returns the state that the key then has.
func (c *Console) settle(ctx context.Context, ch *change) (is driver.State, err error) {
	k := settle.Key{ID: ch.id, Seen: ch.was, Window: cmp.Or(ch.window, c.options.Window),
		Hold: c.options.Hold}
	switch ch.do {
	case doForget:
		is, err = settle.Forget(ctx, c.options.Store, k)
	case doDone:
		is, err = driver.StateSucceeded, settle.Done(ctx, c.options.Store, k)
	case doReleased:
		is, err = driver.StateReleased, settle.Release(ctx, c.options.Store, k)
	}
	if errors.Is(err, settle.ErrMoved) {
		err = errMoved
	}
	return is, err
}
