package httpadapter_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
)

// A service with its own form of errors gets the middleware's errors in that form, too. Only the
// body is different. The status and the headers that clients need are the same.
func TestProblemBody(t *testing.T) {
	envelope := func(r *http.Request, p httpadapter.Problem) (string, []byte) {
		if p.Name == "key-malformed" {
			return "", nil
		}
		body, err := json.Marshal(map[string]any{"error": map[string]any{"code": p.Name,
			"message": p.Title, "path": r.URL.Path, "request": p.Instance}})
		assert.NoError(t, err)
		return "application/vnd.api+json", body
	}
	began, release := make(chan struct{}), make(chan struct{})
	s := newService(t, httpadapter.Config{ProblemBody: envelope, RetryAfter: 3 * time.Second},
		func(w http.ResponseWriter, _ *http.Request) {
			close(began)
			<-release
			w.WriteHeader(http.StatusCreated)
		})
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.Equal(t, http.StatusCreated, s.post("a", "1").Code)
	}()
	<-began

	w := s.post("a", "1")
	close(release)
	<-done
	assert.Equal(t, http.StatusConflict, w.Code)
	wantHeaders(t, w, map[string]string{"Content-Type": "application/vnd.api+json",
		"Cache-Control": "no-store", "Retry-After": "3"})
	var got struct {
		Error struct{ Code, Message, Path, Request string }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body.String())
	assert.Equal(t, "in-flight", got.Error.Code)
	assert.Equal(t, "/payments", got.Error.Path)
	assert.NotEmpty(t, got.Error.Message)
	assert.Contains(t, got.Error.Request, "urn:onceward:")

	wantProblem(t, s.post(`"`, "1"), http.StatusBadRequest, "key-malformed", nil)
}
