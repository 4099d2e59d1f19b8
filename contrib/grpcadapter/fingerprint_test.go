package grpcadapter_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
)

// A client's mistake, one key for two payments, is refused by default: before, the second payment
// got the response of the first and never happened.
func TestAnotherRequestIsRefusedByDefault(t *testing.T) {
	s := newService(t, grpcadapter.Config{}, counted())
	wantValue(t, s.call(t.Context(), charge, "k", "10 EUR"), "10 EUR-1", false)
	wantOwn(t, s.call(t.Context(), charge, "k", "99999 EUR"), codes.FailedPrecondition,
		"KEY_REUSED", 0, "-1")
	wantValue(t, s.call(t.Context(), charge, "k", "10 EUR"), "10 EUR-1", true)
	s.wantRuns(t, 1)
	s = newService(t, grpcadapter.Config{Fingerprint: grpcadapter.NoFingerprint}, counted())
	wantValue(t, s.call(t.Context(), charge, "k", "10 EUR"), "10 EUR-1", false)
	wantValue(t, s.call(t.Context(), charge, "k", "99999 EUR"), "10 EUR-1", true)
}

// every is a type with fields of each kind, singular and in a list; those above the number known
// are left out.
func every(t *testing.T, known int32) protoreflect.MessageType {
	t.Helper()
	msg := &descriptorpb.DescriptorProto{Name: proto.String("Every")}
	number := int32(0)
	add := func(f *descriptorpb.FieldDescriptorProto) {
		number++
		f.Number, f.Name = proto.Int32(number),
			proto.String("f"+string([]rune{'a' + number%26, 'a' + number/26}))
		if number <= known {
			msg.Field = append(msg.Field, f)
		}
	}
	single, list := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	for _, kind := range slices.Sorted(maps.Keys(descriptorpb.FieldDescriptorProto_Type_name)) {
		typ := descriptorpb.FieldDescriptorProto_Type(kind)
		var name *string
		switch typ {
		case descriptorpb.FieldDescriptorProto_TYPE_GROUP:
			continue // proto3 has none
		case descriptorpb.FieldDescriptorProto_TYPE_MESSAGE:
			name = proto.String(".google.protobuf.Struct")
		case descriptorpb.FieldDescriptorProto_TYPE_ENUM:
			name = proto.String(".google.protobuf.NullValue")
		}
		add(&descriptorpb.FieldDescriptorProto{Type: typ.Enum(), Label: single, TypeName: name})
		add(&descriptorpb.FieldDescriptorProto{Type: typ.Enum(), Label: list, TypeName: name})
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("every.proto"), Package: proto.String("test"),
		Syntax:      proto.String("proto3"),
		Dependency:  []string{"google/protobuf/struct.proto"},
		MessageType: []*descriptorpb.DescriptorProto{msg},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	return dynamicpb.NewMessageType(file.Messages().Get(0))
}

// fill gives each field a value that is not its default.
func fill(t *testing.T, m protoreflect.Message, change protoreflect.FieldNumber) {
	t.Helper()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		n := int64(f.Number())
		if f.Number() == change {
			n += 1000
		}
		value := func() protoreflect.Value {
			switch f.Kind() {
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			case protoreflect.EnumKind:
				return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
			case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
				return protoreflect.ValueOfInt32(int32(-n))
			case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
				return protoreflect.ValueOfInt64(-n)
			case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
				return protoreflect.ValueOfUint32(uint32(n))
			case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
				return protoreflect.ValueOfUint64(uint64(n))
			case protoreflect.FloatKind:
				return protoreflect.ValueOfFloat32(float32(n) / 2)
			case protoreflect.DoubleKind:
				return protoreflect.ValueOfFloat64(float64(n) / 2)
			case protoreflect.StringKind:
				return protoreflect.ValueOfString("text" + string(rune('a'+n%26)) +
					string(rune('a'+n%13)))
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte{byte(n), byte(n >> 8)})
			}
			s, err := structpb.NewStruct(map[string]any{"a": n, "b": []any{true, "x", nil},
				"c": map[string]any{"d": 1.5, "e": "f"}})
			require.NoError(t, err)
			return protoreflect.ValueOfMessage(s.ProtoReflect())
		}
		switch {
		case f.IsList() && f.Number() == change:
			list := m.Mutable(f).List()
			list.Append(value())
		case f.IsList():
			list := m.Mutable(f).List()
			list.Append(value())
			list.Append(value())
		case f.Number() == change && f.Kind() == protoreflect.BoolKind: // its default
		default:
			m.Set(f, value())
		}
	}
}

// The fingerprint is protobuf's encoding with the fields in the order of their numbers: Go's own
// library, which happens to write them so today, is the independent implementation. Its output
// must read as an equal message.
func TestRequestFingerprint(t *testing.T) {
	whole := every(t, 1000)
	message := whole.New()
	fill(t, message, 0)
	got := grpcadapter.RequestFingerprint("", message.Interface())
	read := whole.New()
	require.NoError(t, proto.Unmarshal(got, read.Interface()))
	assert.True(t, proto.Equal(message.Interface(), read.Interface()))
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message.Interface())
	require.NoError(t, err)
	assert.Equal(t, want, got)

	t.Run("each field counts", func(t *testing.T) {
		fields := message.Descriptor().Fields()
		for i := range fields.Len() {
			other := whole.New()
			fill(t, other, fields.Get(i).Number())
			assert.NotEqual(t, got, grpcadapter.RequestFingerprint("", other.Interface()),
				"%v", fields.Get(i))
		}
	})
	t.Run("fields that an older server does not know", func(t *testing.T) {
		for _, known := range []int32{0, 5, 11, 20} {
			old := every(t, known).New()
			require.NoError(t, proto.Unmarshal(want, old.Interface()))
			assert.Equal(t, got, grpcadapter.RequestFingerprint("", old.Interface()),
				"a server that knows %d fields", known)
		}
	})
	t.Run("a map in any order", func(t *testing.T) {
		keys := map[string]any{}
		for i := range 50 {
			keys[string(rune('A'+i))] = rand.IntN(10)
		}
		one, err := structpb.NewStruct(keys)
		require.NoError(t, err)
		for range 20 {
			copied := map[string]any{}
			for _, k := range rand.Perm(50) {
				k := string(rune('A' + k))
				copied[k] = keys[k]
			}
			other, err := structpb.NewStruct(copied)
			require.NoError(t, err)
			require.Equal(t, grpcadapter.RequestFingerprint("", one),
				grpcadapter.RequestFingerprint("", other))
		}
	})
	t.Run("an empty request is compared", func(t *testing.T) {
		assert.NotNil(t, grpcadapter.RequestFingerprint("", wrapperspb.String("")))
		assert.Nil(t, grpcadapter.NoFingerprint("", wrapperspb.String("x")))
	})
}
