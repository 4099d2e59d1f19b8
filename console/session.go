package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"
)

const (
	cookieName = "onceward_console"
	// tokenLife is how long a question may be answered.
	tokenLife = 10 * time.Minute
)

// session is the ID in the browser's cookie, or a new one that the browser gets now. It does not
// identify a person: it makes a token valid only in the browser that got the page with the token.
func (c *Console) session(w http.ResponseWriter, r *http.Request) string {
	if s := sessionOf(r); s != "" {
		return s
	}
	s := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: s, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || c.options.SecureCookie,
	})
	return s
}

func sessionOf(r *http.Request) string {
	cookie, err := r.Cookie(cookieName)
	if err != nil || len(cookie.Value) != len(rand.Text()) {
		return ""
	}
	return cookie.Value
}

// token returns a token that allows one person in one session to make one change of one key in the
// state that was shown. The token is valid from now on.
func (c *Console) token(now time.Time, parts ...string) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli())) // after 1970
	return base64.RawURLEncoding.EncodeToString(append(b, c.sign(b, parts)...))
}

func (c *Console) sign(stamp []byte, parts []string) []byte {
	mac := hmac.New(sha256.New, c.options.Secret)
	mac.Write(stamp)
	for _, p := range parts {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p)))) // a form's field
		mac.Write([]byte(p))
	}
	return mac.Sum(nil)
}

// genuine reports whether a token was made for these parts. fresh reports whether its time is not
// over.
func (c *Console) genuine(now time.Time, token string, parts ...string) (genuine, fresh bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	const stamp = 8
	if err != nil || len(b) != stamp+sha256.Size ||
		!hmac.Equal(b[stamp:], c.sign(b[:stamp], parts)) {
		return false, false
	}
	age := now.Sub(time.UnixMilli(int64(binary.BigEndian.Uint64(b)))) // made by token
	return true, age >= 0 && age < tokenLife
}
