package httpadapter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
)

var (
	errRequestTooLarge = errors.New("httpadapter: request is larger than Config.RequestLimit")
	errBodyTaken       = errors.New(
		"httpadapter: the body was read before the middleware: put what reads it inside")
)

// readBody reads the whole body. Any error except errRequestTooLarge and errBodyTaken is an error
// of the connection.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, errRequestTooLarge // a client that waits for a 100 sends nothing
	}
	var buf bytes.Buffer
	if r.Body != nil {
		buf.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead)
		_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, int64(limit)))
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			return nil, errRequestTooLarge
		case err != nil:
			return nil, err
		}
	}
	// If the connection breaks off a body, reading it ends with an error. So if bytes are missing
	// here without an error, other code has read them, and two different requests would look the
	// same. If the length is not known, this check notices it only when other code has read the
	// whole body and parsed it as a form.
	if int64(buf.Len()) < r.ContentLength ||
		buf.Len() == 0 && (len(r.PostForm) > 0 || r.MultipartForm != nil) {
		return nil, errBodyTaken
	}
	return buf.Bytes(), nil
}

// withBody returns the request for one run of the handler. The request is as it came in, has a body
// of its own, and has nothing that an earlier run may have parsed or changed.
func withBody(ctx context.Context, r *http.Request, body []byte) *http.Request {
	c := r.Clone(ctx)
	c.Body = io.NopCloser(bytes.NewReader(body))
	c.ContentLength = int64(len(body))
	c.TransferEncoding = nil
	c.Form, c.PostForm, c.MultipartForm = nil, nil, nil
	return c
}

// removeFiles removes the temporary files of a multipart form of withBody's request. net/http
// removes only the files of its own request.
func removeFiles(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // as net/http does: nobody could do more about it
	}
}
