// Package loopback knows the addresses that only this machine can reach.
package loopback

import (
	"net"
	"net/http"
	"strings"
)

// Is reports whether only this machine reaches host, or host:port.
func Is(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Only answers requests that do not name such a host with an error: a name of somebody else's that
// leads here would make the pages theirs (DNS rebinding).
func Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Is(r.Host) {
			http.Error(w, "Use the address that was printed.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
