package dedup

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The finished steps of a key, as Record.Steps holds them: a version byte, then for each
// step
//
//	1  length of its name, 1-64
//	n  name
//	1  kind: 0 value not kept, 1 nil, 2 value
//	4  length of the value, big-endian: kind 2 only
//	n  value
//
// Nothing else is accepted: a record of a newer version must not be overwritten.
const (
	stepsVersion = 1

	maxSteps     = 64
	maxStepName  = 64
	maxStepBytes = 64 << 10
	maxStepHead  = 1 + maxStepName + 1 + 4
)

type stepKind byte

const (
	stepNotKept stepKind = iota
	stepNil
	stepValue
)

// step is a finished one.
type step struct {
	name  string
	kind  stepKind
	value []byte
	told  bool // it is known to be on record
}

// size is how many bytes the step takes.
func (s *step) size() int {
	n := 1 + len(s.name) + 1
	if s.kind == stepValue {
		n += 4 + len(s.value)
	}
	return n
}

func encodeSteps(list []step) []byte {
	b := []byte{stepsVersion}
	for _, s := range list {
		b = append(b, byte(len(s.name)))
		b = append(b, s.name...)
		b = append(b, byte(s.kind))
		if s.kind == stepValue {
			b = binary.BigEndian.AppendUint32(b, uint32(len(s.value)))
			b = append(b, s.value...)
		}
	}
	return b
}

var errStepCut = errors.New("cut in the middle")

// decodeSteps is the reverse of encodeSteps. An empty b has no steps.
func decodeSteps(b []byte) ([]step, error) {
	switch {
	case len(b) == 0:
		return nil, nil
	case len(b) > maxStepBytes:
		return nil, fmt.Errorf("%d bytes", len(b))
	case b[0] != stepsVersion:
		return nil, fmt.Errorf("version 0x%02x", b[0])
	}
	var list []step
	names := make(map[string]bool)
	for b = b[1:]; len(b) > 0; {
		s, rest, err := decodeStep(b)
		switch {
		case err != nil:
			return nil, err
		case names[s.name]:
			return nil, errors.New("a name that occurs twice")
		case len(list) == maxSteps:
			return nil, fmt.Errorf("more than %d", maxSteps)
		}
		names[s.name] = true
		list, b = append(list, s), rest
	}
	return list, nil
}

func decodeStep(b []byte) (s step, rest []byte, err error) {
	n := int(b[0])
	if n == 0 || n > maxStepName {
		return s, nil, fmt.Errorf("a name of %d bytes", n)
	}
	if len(b) < 1+n+1 {
		return s, nil, errStepCut
	}
	s = step{name: string(b[1 : 1+n]), kind: stepKind(b[1+n]), told: true}
	b = b[1+n+1:]
	switch s.kind {
	case stepNotKept, stepNil:
		return s, b, nil
	case stepValue:
	default:
		return s, nil, fmt.Errorf("kind %d", s.kind)
	}
	if len(b) < 4 {
		return s, nil, errStepCut
	}
	size := binary.BigEndian.Uint32(b)
	b = b[4:]
	if uint64(size) > uint64(len(b)) {
		return s, nil, errStepCut
	}
	s.value = b[:size:size]
	return s, b[size:], nil
}
