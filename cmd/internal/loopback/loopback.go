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

// Only refuses requests whose Host is not such an address. Otherwise another site could let its own
// name lead here, and read these pages as its own (DNS rebinding).
func Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Is(r.Host) {
			http.Error(w, "Use the address that was printed.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
