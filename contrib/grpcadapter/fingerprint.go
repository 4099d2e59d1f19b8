package grpcadapter

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fingerprintVersion is the version of the list of parts, and of the encoding of
// RequestFingerprint.
const fingerprintVersion = 1

// NoFingerprint is a Config.Fingerprint that compares nothing: a key that arrives with another
// request gets the response of the first one.
func NoFingerprint(string, proto.Message) []byte { return nil }

// RequestFingerprint is the default of Config.Fingerprint. It returns all fields of the request, in
// the order of their numbers. The result does not depend on how a build of protobuf encodes a
// message. A field has the same bytes whether this server knows it or not, if the client encodes it
// as protobuf's own libraries do. RequestFingerprint never returns nil, and is safe for concurrent
// use.
func RequestFingerprint(_ string, req proto.Message) []byte {
	return appendMessage([]byte{}, req.ProtoReflect())
}

// numbered is a field in protobuf's wire format.
type numbered struct {
	number protowire.Number
	wire   []byte
}

// appendMessage appends the fields of m in the order of their numbers. Two values of one unknown
// field stay in their order, because they may be a list.
func appendMessage(b []byte, m protoreflect.Message) []byte {
	var fields []numbered
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fields = append(fields, numbered{field.Number(), appendField(nil, field, v)})
		return true
	})
	for unknown := m.GetUnknown(); len(unknown) > 0; {
		number, _, n := protowire.ConsumeField(unknown)
		if n < 0 { // not possible in a message that protobuf has parsed
			fields = append(fields, numbered{math.MaxInt32, unknown})
			break
		}
		fields = append(fields, numbered{number, unknown[:n]})
		unknown = unknown[n:]
	}
	slices.SortStableFunc(fields, func(x, y numbered) int {
		return cmp.Compare(x.number, y.number)
	})
	for _, f := range fields {
		b = append(b, f.wire...)
	}
	return b
}

func appendField(b []byte, field protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch {
	case field.IsMap():
		return appendMap(b, field, v.Map())
	case field.IsList() && field.IsPacked():
		var packed []byte
		for i := range v.List().Len() {
			packed = appendScalar(packed, field.Kind(), v.List().Get(i))
		}
		b = protowire.AppendTag(b, field.Number(), protowire.BytesType)
		return protowire.AppendBytes(b, packed)
	case field.IsList():
		for i := range v.List().Len() {
			b = appendSingle(b, field, v.List().Get(i))
		}
		return b
	}
	return appendSingle(b, field, v)
}

// appendMap appends the entries of a map in the order of their wire format, because Go's own order
// of a map is random.
func appendMap(b []byte, field protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	var entries [][]byte
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		entry := appendSingle(nil, field.MapKey(), k.Value())
		entries = append(entries, appendSingle(entry, field.MapValue(), v))
		return true
	})
	slices.SortFunc(entries, bytes.Compare)
	for _, entry := range entries {
		b = protowire.AppendTag(b, field.Number(), protowire.BytesType)
		b = protowire.AppendBytes(b, entry)
	}
	return b
}

// appendSingle appends one value with its tag.
func appendSingle(b []byte, field protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch field.Kind() {
	case protoreflect.MessageKind:
		b = protowire.AppendTag(b, field.Number(), protowire.BytesType)
		return protowire.AppendBytes(b, appendMessage(nil, v.Message()))
	case protoreflect.GroupKind:
		b = protowire.AppendTag(b, field.Number(), protowire.StartGroupType)
		b = appendMessage(b, v.Message())
		return protowire.AppendTag(b, field.Number(), protowire.EndGroupType)
	}
	b = protowire.AppendTag(b, field.Number(), wireTypes[field.Kind()])
	return appendScalar(b, field.Kind(), v)
}

// wireTypes has the wire types of all kinds except varints, whose wire type is 0.
var wireTypes = map[protoreflect.Kind]protowire.Type{
	protoreflect.Fixed32Kind:  protowire.Fixed32Type,
	protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.FloatKind: protowire.Fixed32Type,
	protoreflect.Fixed64Kind:  protowire.Fixed64Type,
	protoreflect.Sfixed64Kind: protowire.Fixed64Type,
	protoreflect.DoubleKind:   protowire.Fixed64Type,
	protoreflect.StringKind:   protowire.BytesType, protoreflect.BytesKind: protowire.BytesType,
}

// appendScalar appends a value that is not a message, without a tag.
func appendScalar(b []byte, kind protoreflect.Kind, v protoreflect.Value) []byte {
	switch kind {
	case protoreflect.BoolKind:
		return protowire.AppendVarint(b, protowire.EncodeBool(v.Bool()))
	case protoreflect.EnumKind:
		return protowire.AppendVarint(b, uint64(v.Enum())) // the wire format sign-extends
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return protowire.AppendVarint(b, uint64(v.Int())) // as above
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.AppendVarint(b, protowire.EncodeZigZag(v.Int()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return protowire.AppendVarint(b, v.Uint())
	case protoreflect.Fixed32Kind:
		return protowire.AppendFixed32(b, uint32(v.Uint())) // it has 32 bits
	case protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(b, uint32(v.Int())) // it has 32 bits
	case protoreflect.FloatKind:
		return protowire.AppendFixed32(b, math.Float32bits(float32(v.Float())))
	case protoreflect.Fixed64Kind:
		return protowire.AppendFixed64(b, v.Uint())
	case protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(b, uint64(v.Int())) // two's complement
	case protoreflect.DoubleKind:
		return protowire.AppendFixed64(b, math.Float64bits(v.Float()))
	case protoreflect.StringKind:
		return protowire.AppendString(b, v.String())
	default: // bytes
		return protowire.AppendBytes(b, v.Bytes())
	}
}
