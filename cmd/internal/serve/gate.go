package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/loopback"
)

const (
	cookieName = "onceward_pass"
	// maxPasses is how many browsers are let in; the first goes when one more comes.
	maxPasses = 16
	// Of wrong passwords so many are heard in the span; then all wait for its end.
	maxWrong  = 10
	wrongSpan = time.Minute
)

// gate lets in who has the address that was printed, once for each, or the password.
type gate struct {
	next     http.Handler
	password string
	// fresh is told of a token that is good now: at first, and when the one before is used up.
	fresh func(token string)

	mu     sync.Mutex
	token  string
	passes []string
	wrong  int
	since  time.Time
}

// newGate is closed but for its first token, which fresh is told of before it returns.
func newGate(next http.Handler, password string, fresh func(token string)) *gate {
	g := &gate{next: next, password: password, fresh: fresh}
	if password == "" {
		g.renew()
	}
	return g
}

// renew makes the next token. The caller has the lock, or is alone.
func (g *gate) renew() {
	g.token = rand.Text()
	g.fresh(g.token)
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the first address has a token; the console sets its own
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if g.password != "" {
		g.byPassword(w, r)
		return
	}
	if !loopback.Is(r.Host) {
		// A name of somebody else's that leads here would make this page one of theirs.
		http.Error(w, "Use the address that was printed.", http.StatusMisdirectedRequest)
		return
	}
	if token := r.URL.Query().Get("token"); token != "" && r.URL.Path == "/" && r.Method == http.MethodGet {
		g.byToken(w, r, token)
		return
	}
	if c, err := r.Cookie(cookieName); err != nil || !g.knows(c.Value) {
		http.Error(w, "Open the address that onceward console has printed: it lets one browser in.", http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

// byToken gives the browser a pass for the token, which is good for no other.
func (g *gate) byToken(w http.ResponseWriter, r *http.Request, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !same(token, g.token) {
		http.Error(w, "This address has been used, or is not the newest that was printed.", http.StatusForbidden)
		return
	}
	pass := rand.Text()
	if g.passes = append(g.passes, pass); len(g.passes) > maxPasses {
		g.passes = g.passes[1:]
	}
	g.renew()
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: pass, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

func (g *gate) knows(pass string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.passes, func(p string) bool { return same(p, pass) })
}

func (g *gate) byPassword(w http.ResponseWriter, r *http.Request) {
	if g.guessing() {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "Too many wrong passwords. Wait a minute.", http.StatusTooManyRequests)
		return
	}
	_, password, ok := r.BasicAuth()
	if ok && same(password, g.password) {
		g.next.ServeHTTP(w, r)
		return
	}
	if ok {
		g.mu.Lock()
		g.wrong++
		g.mu.Unlock()
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="onceward console", charset="UTF-8"`)
	http.Error(w, "A password is needed.", http.StatusUnauthorized)
}

// guessing reports whether there were too many wrong passwords lately.
func (g *gate) guessing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.since) > wrongSpan {
		g.since, g.wrong = time.Now(), 0
	}
	return g.wrong >= maxWrong
}

// same compares in a time that says nothing of the texts.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
