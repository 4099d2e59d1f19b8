package problem

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProblemIsWritten(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", "7")
	Problem{Name: "in-flight", Title: "Running", Status: 409, Detail: `say "when"`,
		RetryAfter: 1500 * time.Millisecond}.Write(w)
	assert.Equal(t, 409, w.Code)
	for name, want := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "2",
		"Access-Control-Allow-Origin": "*", "Content-Encoding": "", "Content-Length": "",
		"Do-Not-Retry": "",
	} {
		assert.Equal(t, want, w.Header().Get(name), name)
	}
	var got map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	want := map[string]any{"type": Base + "in-flight", "title": "Running", "status": 409.0,
		"detail": `say "when"`}
	assert.Equal(t, want, got)
}

func TestFinalProblem(t *testing.T) {
	w := httptest.NewRecorder()
	Problem{Name: "failed", Title: "Failed", Status: 500, Final: true}.Write(w)
	assert.Equal(t, "1", w.Header().Get("Do-Not-Retry"))
	assert.Empty(t, w.Header().Get("Retry-After"))
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{1: "1", time.Second: "1", time.Second + 1: "2",
		90 * time.Second: "90"} {
		assert.Equal(t, want, Seconds(d), d)
	}
}
