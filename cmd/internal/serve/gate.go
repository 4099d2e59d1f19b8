package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/loopback"
)

const (
	// cookiePrefix is before a random part: browsers send cookies to all ports of a host, and the
	// pass of one console must not take the place of another's.
	cookiePrefix = "onceward_pass_"
	// maxPasses is how many browsers are let in; the first goes when one more comes.
	maxPasses = 16
	// Of wrong passwords so many are heard from an address in the span; then it waits for its end.
	maxWrong  = 10
	wrongSpan = time.Minute
	// maxGuessers is how many addresses are counted apart. All others share one count.
	maxGuessers = 1000
)

// gate lets in who has the address that was printed, once for each, or the password.
type gate struct {
	next     http.Handler
	password string
	// fresh is told of a token that is good now: at first, and when the one before is used up.
	fresh func(token string)

	cookie string // name of the pass

	mu     sync.Mutex
	token  string
	passes []string
	wrong  map[string]int // by address
	since  time.Time
}

// newGate is closed but for its first token, which fresh is told of before it returns.
func newGate(next http.Handler, password string, fresh func(token string)) *gate {
	g := &gate{next: next, password: password, fresh: fresh, cookie: cookiePrefix + rand.Text()[:8]}
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
	// the first address has a token; the console sets its own
	h.Set("Referrer-Policy", "no-referrer")
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
	if token := r.URL.Query().Get("token"); token != "" && r.URL.Path == "/" &&
		r.Method == http.MethodGet {
		g.byToken(w, r, token)
		return
	}
	if !g.passed(r) {
		http.Error(w, "Open the address that onceward console has printed: it lets one browser in.",
			http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

// byToken gives the browser a pass for the token, which is good for no other.
func (g *gate) byToken(w http.ResponseWriter, r *http.Request, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !same(token, g.token) {
		http.Error(w, "This address has been used, or is not the newest that was printed.",
			http.StatusForbidden)
		return
	}
	g.pass(w, r, g.newPass())
	g.renew()
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// newPass makes a pass; the caller has the lock.
func (g *gate) newPass() string {
	pass := rand.Text()
	if g.passes = append(g.passes, pass); len(g.passes) > maxPasses {
		g.passes = g.passes[1:]
	}
	return pass
}

// pass gives it to the browser.
func (g *gate) pass(w http.ResponseWriter, r *http.Request, pass string) {
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: pass, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
}

// passed reports whether the browser has a pass.
func (g *gate) passed(r *http.Request) bool {
	c, err := r.Cookie(g.cookie)
	return err == nil && g.knows(c.Value)
}

func (g *gate) knows(pass string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.passes, func(p string) bool { return same(p, pass) })
}

// byPassword lets in who has the password. A browser that has shown it once has a pass, which is
// let through while guesses are refused: strangers must not be able to lock out who is on call.
func (g *gate) byPassword(w http.ResponseWriter, r *http.Request) {
	_, password, ok := r.BasicAuth()
	if g.passed(r) && ok { // the name of the sign-in is the one that is logged
		g.next.ServeHTTP(w, r)
		return
	}
	from := addressOf(r)
	if g.guessing(from) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "Too many wrong passwords from your address. Wait a minute.",
			http.StatusTooManyRequests)
		return
	}
	if ok && same(password, g.password) {
		g.mu.Lock()
		pass := g.newPass()
		g.mu.Unlock()
		g.pass(w, r, pass)
		g.next.ServeHTTP(w, r)
		return
	}
	if ok {
		g.guessed(from)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="onceward console", charset="UTF-8"`)
	http.Error(w, "A password is needed.", http.StatusUnauthorized)
}

// addressOf is who is counted for a guess: the address without its port, and of IPv6 the network of
// 64 bits, which one machine has for itself.
func addressOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := at.Addr().Unmap()
	if addr.Is4() {
		return addr.String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return addr.String()
	}
	return network.String()
}

// counter is the count that an address adds to. The caller has the lock.
func (g *gate) counter(from string) string {
	if time.Since(g.since) > wrongSpan {
		g.since, g.wrong = time.Now(), make(map[string]int)
	}
	if _, ok := g.wrong[from]; !ok && len(g.wrong) >= maxGuessers {
		return "others"
	}
	return from
}

func (g *gate) guessed(from string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong[g.counter(from)]++
}

// guessing reports whether there were too many wrong passwords from an address recently.
func (g *gate) guessing(from string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrong[g.counter(from)] >= maxWrong
}

// same compares in a time that says nothing of the texts.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
