package httpadapter

import (
	"net/http"
	"strconv"
	"strings"
)

// sameHost returns the host of a request as keys and fingerprints contain it: the result of
// [normalHost], passed through Config.SameHost.
func (c *Config) sameHost(r *http.Request) string {
	host := normalHost(r)
	if c.SameHost != nil {
		return c.SameHost(host)
	}
	return host
}

// normalHost returns r.Host in one spelling: lower case, without the default port of its scheme and
// without the dot that ends a fully qualified name (RFC 9110, 4.2.3; RFC 3986, 6.2.3). Behind a
// proxy that ends TLS, the scheme is not known. So without TLS the default ports of http and https
// are both removed. Otherwise https://api.example:443 would be another host behind such a proxy.
func normalHost(r *http.Request) string {
	host := strings.ToLower(r.Host)
	ports := []string{":443", ":"} // an empty port is the default one
	if r.TLS == nil {
		ports = append(ports, ":80")
	}
	for _, port := range ports {
		if bare, ok := strings.CutSuffix(host, port); ok && !unclosed(bare) {
			host = bare
			break
		}
	}
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !unclosed(host[:i]) {
		name, port = host[:i], host[i:]
	}
	return strings.TrimSuffix(name, ".") + port
}

// unclosed reports whether s ends within an IPv6 address. If so, a colon after s does not begin a
// port.
func unclosed(s string) bool {
	return strings.HasPrefix(s, "[") && !strings.HasSuffix(s, "]")
}

// requestPath returns the path of the request line in one spelling. http.StripPrefix does not
// change that line.
func requestPath(r *http.Request) string {
	target := r.RequestURI
	if target == "" { // a request that did not come from a server
		return normalPath(r.URL.EscapedPath())
	}
	target, _, _ = strings.Cut(target, "?")
	if _, rest, ok := strings.Cut(target, "://"); ok && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(rest, "/") // absolute-form, as clients send it to a proxy
		return normalPath("/" + path)
	}
	return normalPath(target)
}

// normalPath decodes the escapes of unreserved characters, which never change what a path names
// (RFC 3986, 6.2.2). All other characters stay escaped, because "%2F" is not a "/". Their hex
// digits are written in upper case.
func normalPath(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c, ok := escaped(path[i:])
		switch {
		case !ok:
			b.WriteByte(path[i])
			continue
		case strings.IndexByte(unreserved, c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteString(strings.ToUpper(path[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

// unreserved characters mean the same with and without their escape.
const unreserved = alpha + digits + "-._~"

// escaped returns the character of the escape that s begins with.
func escaped(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	code, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(code), err == nil
}
