package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Guesses from one address do not keep another one out, and addresses without end are bounded.
func TestGuessesAreCountedByAddress(t *testing.T) {
	g := newGate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"right password", nil)
	ask := func(from, password string) int {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = from
		r.SetBasicAuth("ann", password)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w.Code
	}
	for i := range maxWrong {
		assert.Equal(t, http.StatusUnauthorized, ask(fmt.Sprintf("192.0.2.1:%d", 1000+i), "wrong"))
		assert.Equal(t, http.StatusUnauthorized,
			ask(fmt.Sprintf("[2001:db8::%d]:1000", i), "wrong"))
	}
	assert.Equal(t, http.StatusTooManyRequests, ask("192.0.2.1:1", "right password"))
	assert.Equal(t, http.StatusTooManyRequests, ask("[2001:db8::ffff]:1", "right password"))
	assert.Equal(t, http.StatusOK, ask("192.0.2.2:1", "right password"))
	for i := range 2 * maxGuessers {
		ask(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "wrong")
	}
	assert.LessOrEqual(t, len(g.wrong), maxGuessers+1)
}

// Browsers send cookies to all ports of a host: a second console must not end the first one's pass.
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
		g := newGate(page, "", func(next string) { token = next })
		gates = append(gates, g)
		assert.Equal(t, http.StatusSeeOther, ask(g, "/?token="+token))
	}
	for _, g := range gates {
		assert.Equal(t, http.StatusOK, ask(g, "/uncertain"))
	}
}
