package httpadapter_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
)

// upload is a request with a form that has a file.
func upload(t *testing.T, key string) *http.Request {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	require.NoError(t, form.SetBoundary("boundary")) // equal requests
	file, err := form.CreateFormFile("file", "a.bin")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, 100<<10))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r := httptest.NewRequest(http.MethodPost, "/", &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Account", "a")
	return r
}

// Prevents: net/http removes the uploaded files only of its own request. The handler gets a copy of
// that request, and so every upload stayed on the disk.
func TestFilesOfFormsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	parse := func(r *http.Request) error {
		err := r.ParseMultipartForm(1 << 10)
		assert.NoError(t, err)
		files, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Len(t, files, 1, "while it is handled")
		return err
	}
	s := newService(t, httpadapter.Config{BeforeReplay: parse},
		func(w http.ResponseWriter, r *http.Request) {
			if parse(r) == nil && r.Header.Get("X-Panic") != "" {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusCreated)
		})
	for range 2 { // the second one is a replay
		answer := httptest.NewRecorder()
		s.h.ServeHTTP(answer, upload(t, "key-number-1"))
		require.Equal(t, http.StatusCreated, answer.Code)
	}
	s.wantRuns(t, 1)
	failing := upload(t, "key-number-2")
	failing.Header.Set("X-Panic", "yes")
	assert.Panics(t, func() { s.h.ServeHTTP(httptest.NewRecorder(), failing) })
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
