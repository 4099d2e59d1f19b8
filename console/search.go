package console

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyname"
	"github.com/onceward/onceward/internal/keyspec"
)

// form is the search as it was typed in.
type form struct {
	keyspec.Spec
	// By names the form that was used: key, request, webhook, call or id.
	By, ID       string
	Fault, Field string
	// Found are the keys whose IDs begin with ID, unless there is exactly one.
	Found []listed
}

// searchForm is one of the forms.
type searchForm struct {
	By, Legend string
	Inputs     []input
}

// input is a field of a form, with what was typed in.
type input struct {
	Name, Label, Hint, Value string
	Max                      int
	Optional, Wrong          bool
}

// Forms are the forms. The browser checks the lengths, and package keyspec checks everything.
func (f *form) Forms() []searchForm {
	const short, long = 255, 4096
	namespace := input{Name: "namespace", Label: "Namespace of the Deduper", Value: f.Namespace,
		Max: 64}
	principal := input{Name: "principal", Label: "Principal", Value: f.Principal, Max: long,
		Hint: "the account that Scope returns; none with Unscoped", Optional: true}
	key := func(label, hint string) input {
		return input{Name: "key", Label: label, Hint: hint, Value: f.Key, Max: short}
	}
	forms := []searchForm{
		{"key", "by key", []input{namespace,
			{Name: "scope", Label: "Scope", Hint: "if keys have one; of Kafka messages group/topic",
				Value: f.Scope, Max: short, Optional: true}, key("Key", "")}},
		{"id", "by ID", []input{{Name: "id", Label: "ID", Value: f.ID, Max: 60,
			Hint: "32 hex digits, or the first of them, as in lists, logs and answers"}}},
		{"request", "by HTTP request", []input{namespace,
			{Name: "method", Label: "Method", Value: f.Method, Max: 32},
			{Name: "url", Label: "URL", Value: f.URL, Max: long, Optional: true},
			{Name: "route", Label: "Route", Value: f.Route, Max: long, Optional: true,
				Hint: "instead of the URL, where the program has Config.Route"},
			principal, key("Idempotency-Key", "")}},
		{"webhook", "by webhook", []input{namespace,
			{Name: "webhook", Label: "Provider", Hint: "such as stripe", Value: f.Provider,
				Max: short},
			{Name: "endpoint", Label: "Endpoint", Value: f.Endpoint, Max: long},
			key("ID of the event", "where it is signed")}},
		{"call", "by gRPC call", []input{namespace,
			{Name: "grpc", Label: "Method", Hint: "/package.Service/Method", Value: f.GRPC,
				Max: long}, principal, key("Idempotency key", "")}},
	}
	for i := range forms {
		for n := range forms[i].Inputs {
			in := &forms[i].Inputs[n]
			in.Wrong = f.By == forms[i].By && f.Field == in.Name
		}
	}
	return forms
}

// fieldNames are the names of fields for people, where they differ from those of keyspec, which are
// flags.
var fieldNames = map[string]string{"webhook": "provider", "grpc": "gRPC method", "url": "URL"}

// search shows the forms, and answers them. The forms use POST, so that no address, browser history
// or server log contains a key.
func (c *Console) search(w http.ResponseWriter, r *http.Request) error {
	f := form{}
	f.Namespace = c.options.Namespace
	if r.Method != http.MethodPost {
		return c.write(w, r, http.StatusOK, "search", "Search", &f)
	}
	if err := c.cross.Check(r); err != nil {
		return c.foreign(r, err)
	}
	if err := readForm(w, r, maxForm); err != nil {
		return err
	}
	get := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	f = form{By: cmp.Or(get("by"), "key"), ID: get("id"), Spec: keyspec.Spec{
		Namespace: r.PostForm.Get("namespace"), Scope: r.PostForm.Get("scope"),
		Key:    r.PostForm.Get("key"),
		Method: get("method"), URL: get("url"), Route: get("route"),
		Principal: r.PostForm.Get("principal"), Name: r.PostForm.Get("name"),
		GRPC: get("grpc"), Provider: get("webhook"), Endpoint: r.PostForm.Get("endpoint"),
	}}
	if f.ID != "" {
		f.By = "id"
		return c.searchID(w, r, &f)
	}
	typed := record{Key: f.Key, Namespace: f.Namespace, Scope: f.Scope, Plain: !f.Scoped()}
	spec := f.Spec
	id, err := spec.Resolve()
	var input *keyspec.Error
	if errors.As(err, &input) {
		name := input.Field
		if fieldNames[name] != "" {
			name = fieldNames[name]
		}
		f.Fault, f.Field = "The "+strings.ReplaceAll(name, "-", " ")+" "+input.Reason+".",
			input.Field
		return c.write(w, r, http.StatusBadRequest, "search", "Search", &f)
	}
	return c.show(w, r, id, typed)
}

// leastPrefix is how many digits of an ID a search needs.
const leastPrefix = 4

// searchID answers with the key of an ID, or with the keys whose IDs begin with its digits.
func (c *Console) searchID(w http.ResponseWriter, r *http.Request, f *form) error {
	text := strings.ToLower(strings.TrimPrefix(f.ID, keyname.URNPrefix))
	if id, err := parseID(text); err == nil {
		return c.show(w, r, id, record{})
	}
	lister, ok := c.options.Store.(Lister)
	bad := func(status int, fault string) error {
		f.Fault, f.Field = fault, "id"
		return c.write(w, r, status, "search", "Search", f)
	}
	if len(text) < leastPrefix || len(text) >= 2*len(driver.ID{}) ||
		strings.Trim(text, "0123456789abcdef") != "" || !ok {
		return bad(http.StatusBadRequest,
			"An ID has 32 hex digits; the first 4 or more are enough where no other key begins so.")
	}
	seen := make(map[driver.ID]bool) // a SCAN may name a key twice
	states := []driver.State{driver.StateInProgress, driver.StateSucceeded, driver.StateFailed,
		driver.StateReleased, driver.StateUncertain}
	var at reach
	err := c.goOn(r.Context(), lister, &at,
		wanted{states: states, limit: maxListLimit, budget: listTime},
		func(id driver.ID, rec dedup.Record) {
			if !seen[id] && strings.HasPrefix(hex.EncodeToString(id[:]), text) {
				seen[id] = true
				f.Found = append(f.Found, listedOf(id, &rec))
			}
		}, func() bool { return len(f.Found) >= c.options.ListLimit })
	switch {
	case err != nil:
		return err
	case at.Next != "":
		return bad(http.StatusOK,
			"The store has too many keys to look at all of them here: give the whole ID, or use onceward inspect.")
	case len(f.Found) == 0:
		return bad(http.StatusNotFound, "No key in the store has an ID that begins so.")
	case len(f.Found) > 1:
		return bad(http.StatusOK, "Several keys have an ID that begins so.")
	}
	id, err := parseID(f.Found[0].ID)
	if err != nil {
		return err
	}
	return c.show(w, r, id, record{})
}
