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

// readBody reads the whole body. An error that is none of ours is one of the connection.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, errRequestTooLarge // unread: a client that awaits a 100 sends nothing
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
	// A body that the connection breaks off ends with an error. So something else has read the
	// bytes that are missing here, and two requests would look the same. Where the length is not
	// known, this shows only if the whole body was read.
	if int64(buf.Len()) < r.ContentLength ||
		buf.Len() == 0 && (len(r.PostForm) > 0 || r.MultipartForm != nil) {
		return nil, errBodyTaken
	}
	return buf.Bytes(), nil
}

// withBody is the request for one run of the handler: as it came in, with a body of its own,
// and nothing that an earlier run may have parsed or changed.
func withBody(ctx context.Context, r *http.Request, body []byte) *http.Request {
	c := r.Clone(ctx)
	c.Body = io.NopCloser(bytes.NewReader(body))
	c.ContentLength = int64(len(body))
	c.TransferEncoding = nil
	c.Form, c.PostForm, c.MultipartForm = nil, nil, nil
	return c
}

// removeFiles removes what a multipart form of withBody's request has put into files. net/http
// removes only those of the request that it has made itself.
func removeFiles(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // as net/http does: nobody could do more about it
	}
}
