package grpcadapter

import (
	"context"
	"errors"
	"unicode/utf8"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/encrypted"
)

// A stored response or error is an encrypted.Response. A handler's response has code 0, the URL of
// its type under typeURL, and its encoding as the body. An error has its code, no header, and its
// google.rpc.Status as the body.
const (
	typeURL   = "type-url"
	urlPrefix = "type.googleapis.com/"
)

// shortMessage is how many bytes of an error's message are stored if the error is too large to be
// kept whole. They fit into the smallest limit.
const shortMessage = 128

// result returns the bytes that are stored for a response or an error that is kept. A response that
// cannot be replayed leaves a tombstone, because the effect has happened. An error leaves none.
func (c *call) result() []byte {
	if c.err != nil {
		return c.encodeError(c.err)
	}
	r, err := form(c.resp, nil)
	if err != nil {
		c.i.cfg.Logger.Error("grpcadapter: a response cannot be encoded", "method", c.method,
			"error", err)
		c.lost = &responseInvalid
	} else {
		stored := c.encode(r)
		if len(stored) <= c.i.cfg.ResponseLimit {
			return stored
		}
		c.lost = &responseTooLarge
	}
	return c.encode(&encrypted.Response{Tombstone: true})
}

// encodeError returns the bytes that are stored for an error with a status of gRPC.
func (c *call) encodeError(err error) []byte {
	if r, merr := form(nil, err); merr == nil {
		if stored := c.encode(r); len(stored) <= c.i.cfg.ResponseLimit {
			return stored
		}
	}
	st := status.Convert(err)
	message := st.Message()[:min(len(st.Message()), shortMessage)]
	for !utf8.ValidString(message) { // the whole message is valid
		message = message[:len(message)-1]
	}
	r, merr := form(nil, status.Error(st.Code(), message))
	if merr != nil {
		panic(merr) // a number and a text that is UTF-8
	}
	return c.encode(r)
}

func (c *call) encode(r *encrypted.Response) []byte { return c.i.box.Encode(c.scope, c.key, r) }

var errNoMessage = errors.New("it is not a protobuf message")

func form(resp any, err error) (*encrypted.Response, error) {
	if err != nil {
		body, merr := proto.Marshal(status.Convert(err).Proto())
		return &encrypted.Response{Status: int(status.Code(err)), Body: body}, merr
	}
	m, ok := resp.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	body, err := proto.Marshal(m)
	url := urlPrefix + string(m.ProtoReflect().Descriptor().FullName())
	return &encrypted.Response{Header: map[string][]string{typeURL: {url}}, Body: body}, err
}

// decode reads the stored form r. It returns the response, or the status of the handler's error.
// It returns an error if r cannot be decoded.
func decode(r *encrypted.Response, types Types) (proto.Message, *status.Status, error) {
	if r.Status != int(codes.OK) {
		var st statuspb.Status
		if err := proto.Unmarshal(r.Body, &st); err != nil {
			return nil, nil, err
		}
		if int(st.Code) != r.Status || len(r.Header) > 0 {
			return nil, nil, &dedup.InputError{Field: "stored response",
				Reason: "is not an error of gRPC"}
		}
		return nil, status.FromProto(&st), nil
	}
	urls := r.Header[typeURL]
	if len(urls) != 1 {
		return nil, nil, &dedup.InputError{Field: "stored response", Reason: "has no type of gRPC"}
	}
	t, err := types.FindMessageByURL(urls[0])
	if err != nil {
		return nil, nil, err
	}
	m := t.New().Interface()
	return m, nil, proto.Unmarshal(r.Body, m)
}

// EncodeResponse encodes a response, or an error with a code of gRPC, for [dedup.Config].Resolve,
// which passes it to [dedup.Happened] when it finds that the effect of a call has happened.
// Retries then get that response or error. ctx is the one that Resolve gets. As with a handler's
// answer, an error that is larger than Config.ResponseLimit is cut, and a response that is larger
// leaves a tombstone. EncodeResponse returns an [*dedup.InputError] if ctx is not that of a call
// with a key, if resp and err are both nil, or if the response cannot be encoded.
func EncodeResponse(ctx context.Context, resp proto.Message, err error) ([]byte, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil, &dedup.InputError{Field: "Context", Reason: "is not that of a call with a key"}
	}
	err = statusOf(err)
	if status.Code(err) > codes.Unauthenticated {
		return nil, &dedup.InputError{Field: "Error", Reason: "has no code of gRPC"}
	}
	if err != nil {
		return c.encodeError(err), nil
	}
	r, merr := form(resp, nil)
	if merr != nil {
		return nil, &dedup.InputError{Field: "Response", Reason: merr.Error()}
	}
	stored := c.encode(r)
	if len(stored) > c.i.cfg.ResponseLimit {
		stored = c.encode(&encrypted.Response{Tombstone: true})
	}
	return stored, nil
}
