package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Browsers send cookies to all ports of a host. A second console must not replace the first one's.
func TestTwoConsolesInOneBrowser(t *testing.T) {
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	var gates []*gate
	jar := make(map[string]*http.Cookie)
	ask := func(g *gate, target string) int {
		r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
		r.Host = "127.0.0.1:1"
		for _, c := range jar {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		for _, c := range w.Result().Cookies() {
			jar[c.Name] = c
		}
		return w.Code
	}
	for range 2 {
		token := ""
		g := newGate(page, func(next string) { token = next })
		gates = append(gates, g)
		assert.Equal(t, http.StatusSeeOther, ask(g, "/?token="+token))
	}
	for _, g := range gates {
		assert.Equal(t, http.StatusOK, ask(g, "/uncertain"))
	}
}
