//go:build browser

package console_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/internal/integration/internal/demo"
)

// TestBrowserDemo: the console of a running demo after its last crash shows the reports of its
// workers, four of which were killed in each composition.
func TestBrowserDemo(t *testing.T) {
	d := demo.Start(t, "--takes", "2m", "--messages", "3000")
	d.Await("Claimed: ")
	for range 4 {
		d.Await("SIGKILL")
	}
	b := openBrowser(t)
	b.look(wide, 900, "light")
	b.open("http://" + d.Host + "/")
	b.accessible("demo")
	keep(t, "demo", b.shot(wide))
	text := eval[string](b, `document.body.innerText`)
	for _, want := range []string{"Onceward: demo", "atomic", "claimed", "producer retry",
		"rebalance replay"} {
		assert.Contains(t, text, want)
	}
	b.quiet()
}
