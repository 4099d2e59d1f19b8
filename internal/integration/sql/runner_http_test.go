package sql_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/sqladapter"
)

// payments books its key and answers with it, with the status that is asked for.
func (s *shop) payments(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, ok := sqladapter.TxFrom(r.Context())
		if !assert.True(t, ok, "no transaction in the request's context") {
			return
		}
		key := r.Header.Get("Idempotency-Key")
		assert.NoError(t, s.effect(r.Context(), tx, key))
		status, err := strconv.Atoi(r.URL.Query().Get("status"))
		assert.NoError(t, err)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(key))
	})
}

func pay(h http.Handler, key string, status int) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/pay?status="+strconv.Itoa(status), nil)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
