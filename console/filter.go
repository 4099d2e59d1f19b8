package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// filter is what a person wants to see of a list, and in which order.
type filter struct {
	Text  string // part of a label or of an origin, or the beginning of an ID
	Older string
	Sort  string
	older time.Duration
}

// choice is one of a few values.
type choice struct{ Value, Text string }

// Ages and Orders are what can be chosen, the first by default.
func (*filter) Ages() []choice {
	return []choice{{"", "any age"}, {"1m", "over a minute"}, {"10m", "over 10 minutes"},
		{"1h", "over an hour"}, {"6h", "over 6 hours"}, {"24h", "over a day"}}
}

func (*filter) Orders() []choice {
	return []choice{{"", "oldest first"}, {"newest", "newest first"},
		{"attempts", "most attempts first"}, {"label", "by label"}}
}

// filterOf reads a filter. It refuses a filter that it does not understand, because otherwise a
// change might reach keys that nobody has chosen.
func filterOf(q url.Values) (filter, error) {
	f := filter{Text: strings.TrimSpace(q.Get("text")), Older: q.Get("older"), Sort: q.Get("sort")}
	offered := func(all []choice, value string) bool {
		return slices.ContainsFunc(all, func(c choice) bool { return c.Value == value })
	}
	if !offered(f.Ages(), f.Older) || !offered(f.Orders(), f.Sort) {
		return f, &refusal{http.StatusBadRequest, "There is no such filter",
			"Choose one of those that a list offers."}
	}
	if f.Older != "" {
		f.older, _ = time.ParseDuration(f.Older) // one of those above
	}
	return f, nil
}

// Active reports whether the filter leaves something out.
func (f *filter) Active() bool { return f.Text != "" || f.Older != "" }

// query returns the query part of an address, with the filter and the parameters q.
func (f *filter) query(q url.Values) string {
	if q == nil {
		q = url.Values{}
	}
	for name, value := range map[string]string{"text": f.Text, "older": f.Older, "sort": f.Sort} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

func (f *filter) matches(l *listed) bool {
	text := strings.ToLower(f.Text)
	if !strings.Contains(strings.ToLower(l.Name+"\n"+l.Origin), text) &&
		!strings.HasPrefix(l.ID, text) {
		return false
	}
	return f.older == 0 || !l.at.IsZero() && time.Since(l.at) >= f.older
}

// sort puts the keys in order. Those of unknown age come last.
func (f *filter) sort(keys []listed) {
	unknown := func(l *listed) int {
		if l.at.IsZero() {
			return 1
		}
		return 0
	}
	slices.SortFunc(keys, func(a, b listed) int {
		first := 0
		switch f.Sort {
		case "newest":
			first = cmp.Or(unknown(&a)-unknown(&b), b.at.Compare(a.at))
		case "attempts":
			first = cmp.Compare(b.Attempt, a.Attempt)
		case "label":
			first = cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(first, unknown(&a)-unknown(&b), a.at.Compare(b.at), cmp.Compare(a.ID, b.ID))
	})
}
