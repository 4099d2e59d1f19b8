// Package stepcode is the form in which a key keeps its finished steps: a version byte, then for
// each step
//
//	1  length of its name, 1-64
//	n  name
//	1  kind: 0 value not kept, 1 nil, 2 value
//	4  length of the value, big-endian: kind 2 only
//	n  value
//
// Nothing else is accepted: a record of a newer version must not be overwritten.
package stepcode

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	version = 1

	// Max bounds the steps of a key.
	Max = 64
	// MaxName bounds the bytes of a name.
	MaxName = 64
	// MaxBytes bounds what a key keeps.
	MaxBytes = 64 << 10
	// MaxHead is the most that a step takes besides its value.
	MaxHead = 1 + MaxName + 1 + 4
)

// Kind is what is kept of the value of a step.
type Kind byte

const (
	// NotKept is a value that was too large, or could not be encoded.
	NotKept Kind = iota
	// Nil is a value that is stored as nothing.
	Nil
	// Value is a value that follows.
	Value
)

// Step is a finished step.
type Step struct {
	// Name of the step within its key.
	Name string
	// Kind says whether there is a Value.
	Kind Kind
	// Value that the step returned, encoded.
	Value []byte
	// Told says that the step is known to be on record. It is not encoded.
	Told bool
}

// Size returns how many bytes the step takes.
func (s *Step) Size() int {
	n := 1 + len(s.Name) + 1
	if s.Kind == Value {
		n += 4 + len(s.Value)
	}
	return n
}

// Encode returns the form of the steps.
func Encode(list []Step) []byte {
	b := []byte{version}
	for _, s := range list {
		b = append(b, byte(len(s.Name)))
		b = append(b, s.Name...)
		b = append(b, byte(s.Kind))
		if s.Kind == Value {
			b = binary.BigEndian.AppendUint32(b, uint32(len(s.Value)))
			b = append(b, s.Value...)
		}
	}
	return b
}

var errCut = errors.New("cut in the middle")

// Decode is the reverse of Encode. An empty b has no steps.
func Decode(b []byte) ([]Step, error) {
	switch {
	case len(b) == 0:
		return nil, nil
	case len(b) > MaxBytes:
		return nil, fmt.Errorf("%d bytes", len(b))
	case b[0] != version:
		return nil, fmt.Errorf("version 0x%02x", b[0])
	}
	var list []Step
	names := make(map[string]bool)
	for b = b[1:]; len(b) > 0; {
		s, rest, err := decode(b)
		switch {
		case err != nil:
			return nil, err
		case names[s.Name]:
			return nil, errors.New("a name that occurs twice")
		case len(list) == Max:
			return nil, fmt.Errorf("more than %d", Max)
		}
		names[s.Name] = true
		list, b = append(list, s), rest
	}
	return list, nil
}

func decode(b []byte) (s Step, rest []byte, err error) {
	n := int(b[0])
	if n == 0 || n > MaxName {
		return s, nil, fmt.Errorf("a name of %d bytes", n)
	}
	if len(b) < 1+n+1 {
		return s, nil, errCut
	}
	s = Step{Name: string(b[1 : 1+n]), Kind: Kind(b[1+n]), Told: true}
	b = b[1+n+1:]
	switch s.Kind {
	case NotKept, Nil:
		return s, b, nil
	case Value:
	default:
		return s, nil, fmt.Errorf("kind %d", s.Kind)
	}
	if len(b) < 4 {
		return s, nil, errCut
	}
	size := binary.BigEndian.Uint32(b)
	b = b[4:]
	if uint64(size) > uint64(len(b)) {
		return s, nil, errCut
	}
	s.Value = b[:size:size]
	return s, b[size:], nil
}
