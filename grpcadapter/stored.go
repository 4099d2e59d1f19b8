package grpcadapter

import (
	"context"
	"errors"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sealed"
)

// What is stored is a sealed.Response. A response of a handler has code 0, the URL of its
// type under typeURL, and its encoding as the body; an error has its code, no header, and
// its google.rpc.Status as the body.
const (
	typeURL   = "type-url"
	urlPrefix = "type.googleapis.com/"
)

// result is what to store of a response or error that is kept. What cannot be replayed
// leaves a tombstone: the effect has happened.
func (c *call) result() []byte {
	r, err := form(c.resp, c.err)
	if err != nil {
		c.i.cfg.Logger.Error("grpcadapter: a response cannot be encoded", "method", c.method, "error", err)
		c.lost = &responseInvalid
	} else {
		stored := c.encode(r)
		if len(stored) <= c.i.cfg.ResponseLimit {
			return stored
		}
		c.lost = &responseTooLarge
	}
	return c.encode(tombstone(c.err))
}

func tombstone(err error) *sealed.Response {
	return &sealed.Response{Tombstone: true, Status: int(status.Code(err))}
}

func (c *call) encode(r *sealed.Response) []byte { return c.i.box.Encode(c.scope, c.key, r) }

var errNoMessage = errors.New("it is no protobuf message")

func form(resp any, err error) (*sealed.Response, error) {
	if err != nil {
		body, merr := proto.Marshal(status.Convert(err).Proto())
		return &sealed.Response{Status: int(status.Code(err)), Body: body}, merr
	}
	m, ok := resp.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	body, err := proto.Marshal(m)
	url := urlPrefix + string(m.ProtoReflect().Descriptor().FullName())
	return &sealed.Response{Header: map[string][]string{typeURL: {url}}, Body: body}, err
}

// decode is the reverse of form: the response, or what the handler's error was. A bad one
// is the error in the end.
func decode(r *sealed.Response, types Types) (proto.Message, *status.Status, error) {
	if r.Status != int(codes.OK) {
		var st statuspb.Status
		if err := proto.Unmarshal(r.Body, &st); err != nil {
			return nil, nil, err
		}
		if int(st.Code) != r.Status || len(r.Header) > 0 {
			return nil, nil, &dedup.InputError{Field: "stored response", Reason: "is no error of gRPC"}
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

// EncodeResponse makes of a response, or of an error with a code of gRPC, what
// [dedup.Config].Resolve returns with StateSucceeded: the result of a call whose effect is
// found to have happened, to be replayed. ctx is the one that Resolve gets. What is larger
// than Config.ResponseLimit leaves a tombstone, as that of a handler does. A ctx of something
// else, neither resp nor err, and what cannot be encoded, are an [*dedup.InputError].
func EncodeResponse(ctx context.Context, resp proto.Message, err error) ([]byte, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil, &dedup.InputError{Field: "Context", Reason: "is not that of a call with a key"}
	}
	err = statusOf(err)
	if status.Code(err) > codes.Unauthenticated {
		return nil, &dedup.InputError{Field: "Error", Reason: "has no code of gRPC"}
	}
	r, merr := form(resp, err)
	if merr != nil {
		return nil, &dedup.InputError{Field: "Response", Reason: merr.Error()}
	}
	stored := c.encode(r)
	if len(stored) > c.i.cfg.ResponseLimit {
		stored = c.encode(tombstone(err))
	}
	return stored, nil
}
