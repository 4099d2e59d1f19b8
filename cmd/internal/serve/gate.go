package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"

	"github.com/onceward/onceward/cmd/internal/loopback"
)

const (
	// cookiePrefix precedes a random part. Browsers send cookies to all ports of a host, so without
	// the random part the pass of one console would replace the pass of another.
	cookiePrefix = "onceward_pass_"
	// maxPasses is how many browsers are let in. One more replaces the first.
	maxPasses = 16
)

// gate lets in a browser that opens the printed address. Each address works once.
type gate struct {
	next http.Handler
	// fresh is called with each new token: first with the initial token, and then with the next
	// token whenever one is used up.
	fresh func(token string)

	cookie string // the name of the cookie with the pass

	mu     sync.Mutex
	token  string
	passes []string
}

// newGate returns a gate that only its first token opens. It calls fresh with that token before it
// returns.
func newGate(next http.Handler, fresh func(token string)) *gate {
	g := &gate{next: next, fresh: fresh, cookie: cookiePrefix + rand.Text()[:8]}
	g.renew()
	return g
}

// renew makes the next token. The caller holds the lock, or is the only goroutine that knows the
// gate.
func (g *gate) renew() {
	g.token = rand.Text()
	g.fresh(g.token)
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// The first address contains a token. The console replaces the Content-Security-Policy that is
	// set here by its own.
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	loopback.Only(http.HandlerFunc(g.enter)).ServeHTTP(w, r)
}

// enter serves a request for an address of this machine.
func (g *gate) enter(w http.ResponseWriter, r *http.Request) {
	if token := r.URL.Query().Get("token"); token != "" && r.URL.Path == "/" &&
		r.Method == http.MethodGet {
		g.byToken(w, token)
		return
	}
	if !g.passed(r) {
		http.Error(w, "Open the address that onceward console has printed: it lets one browser in.",
			http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

// byToken gives the browser a pass, as a cookie, in exchange for the token. The token is then used
// up.
func (g *gate) byToken(w http.ResponseWriter, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !same(token, g.token) {
		http.Error(w, "This address has been used, or is not the newest that was printed.",
			http.StatusForbidden)
		return
	}
	pass := rand.Text()
	if g.passes = append(g.passes, pass); len(g.passes) > maxPasses {
		g.passes = g.passes[1:]
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: pass, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	g.renew()
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// passed reports whether the browser has a pass.
func (g *gate) passed(r *http.Request) bool {
	c, err := r.Cookie(g.cookie)
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.passes, func(pass string) bool { return same(pass, c.Value) })
}

// same compares two texts in a time that does not depend on what they contain.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
