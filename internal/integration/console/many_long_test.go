//go:build long

package console_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// TestTenMillion: among ten million other keys the pages count and list exactly the keys that are
// uncertain, and those past their point of no return, and settle many of them at once.
// ONCEWARD_KEYS is another number of keys.
func TestTenMillion(t *testing.T) {
	const uncertain, marked = 600, 100
	all := 10_000_000
	if fewer, err := strconv.Atoi(os.Getenv("ONCEWARD_KEYS")); err == nil {
		all = fewer
	}
	r, proxy := crowdedRig(t, all)
	proxy.SetRules()
	for i := range uncertain - 1 { // one is the rig's
		r.doubt(fmt.Sprint("u", i), func(r *dedup.Request) { r.Label = fmt.Sprint("order ", i%10) })
	}
	for i := range marked {
		r.marked(fmt.Sprint("m", i))
	}
	get := func(target string, parts ...string) string {
		began := time.Now()
		page := r.shows(target, nil, http.StatusOK, parts...)
		t.Logf("%-40s %v", target, time.Since(began).Round(time.Millisecond))
		return page
	}
	get("", `<span class="number">600</span> uncertain`,
		`<span class="number">100</span> past the point of no return`)
	page := get("uncertain?rows=1000", "600 keys.")
	assert.Equal(t, uncertain, strings.Count(page, "key?id="))
	get("uncertain?text=order+7", "600 keys, 60 of them match.")
	marks, _, _ := strings.Cut(get("inflight", "100 keys. Each becomes uncertain"), "Other keys")
	assert.Equal(t, marked, strings.Count(marks, "key?id="))
	page = get("bulk?do=released&text=order+7", "may 60 run again?")
	form := formOf(page)
	form.Set("confirm", "may run again")
	began := time.Now()
	r.shows("bulk", form, http.StatusOK, "60 keys were resolved as released")
	t.Logf("%-40s %v", "60 keys resolved", time.Since(began).Round(time.Millisecond))
	require.Len(t, form["key"], 60)
	get("uncertain", "540 keys; the first 100 are listed.")
}
