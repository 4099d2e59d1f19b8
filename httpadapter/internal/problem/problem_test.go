package problem

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"
)

func TestProblemIsWritten(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", "7")
	Problem{Name: "in-flight", Title: "Running", Status: 409, Detail: `say "when"`, RetryAfter: 1500 * time.Millisecond}.Write(w)
	if w.Code != 409 {
		t.Errorf("status %d", w.Code)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "2",
		"Access-Control-Allow-Origin": "*", "Content-Encoding": "", "Content-Length": "", "Do-Not-Retry": "",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"type": Base + "in-flight", "title": "Running", "status": 409.0, "detail": `say "when"`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFinalProblem(t *testing.T) {
	w := httptest.NewRecorder()
	Problem{Name: "failed", Title: "Failed", Status: 500, Final: true}.Write(w)
	if w.Header().Get("Do-Not-Retry") != "1" || w.Header().Get("Retry-After") != "" {
		t.Errorf("headers %v", w.Header())
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90"} {
		if got := Seconds(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
