package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onceward/onceward/console"
	"github.com/onceward/onceward/dedup"
)

// A program serves the pages below a path of its own, with the numbers of its Deduper.
func Example() {
	store, window := dedup.Memory(1000), 72*time.Hour
	c, err := console.New(console.Options{Store: store, Namespace: "payments", Window: window})
	if err != nil {
		panic(err)
	}
	observer, err := c.Observer("payments", window)
	if err != nil {
		panic(err)
	}
	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: window,
		LeaseTTL: 30 * time.Second, Observer: observer})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer func() { _ = d.Close(ctx) }()
	for _, id := range []string{"evt_1", "evt_2", "evt_1"} {
		if _, err := dedup.Do(ctx, d, id, func(context.Context) (string, error) {
			return "ch_1", nil
		}); err != nil {
			panic(err)
		}
	}

	mux := http.NewServeMux()
	// behind the protection of your operators' pages
	mux.Handle("/console/", http.StripPrefix("/console", c))
	page := httptest.NewRecorder()
	mux.ServeHTTP(page, httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/", nil))
	fmt.Println(page.Code, strings.Contains(page.Body.String(),
		"3 claims, of them 2 acquired and 1 duplicates"))
	// Output: 200 true
}
