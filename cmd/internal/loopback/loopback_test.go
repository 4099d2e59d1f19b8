package loopback_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/cmd/internal/loopback"
)

func TestIs(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost": true, "localhost:80": true, "127.0.0.1": true, "127.0.0.1:0": true,
		"127.8.9.1:80": true, "::1": true, "[::1]": true, "[::1]:80": true,
		"": false, ":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false,
		"example.com": false, "localhost.example.com:80": false, "127.0.0.1.example.com": false,
	} {
		assert.Equal(t, want, loopback.Is(address), address)
	}
}

func TestOnly(t *testing.T) {
	for host, want := range map[string]int{"127.0.0.1:80": http.StatusNoContent,
		"localhost": http.StatusNoContent, "evil.example:80": http.StatusMisdirectedRequest} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		loopback.Only(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		})).ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, host)
	}
}
