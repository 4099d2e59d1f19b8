package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// finishedHeader begins the metadata of an offset that this command has committed.
	finishedHeader = "onceward-replay/1"
	// maxFinished is the limit of the metadata, in bytes: brokers refuse more than 4096 unless
	// offset.metadata.max.bytes says otherwise.
	maxFinished = 4096
)

// span is a range of offsets; to is not in it.
type span struct{ from, to int64 }

// finished holds which offsets of a partition are done: all offsets below next, and those in ahead.
type finished struct {
	next  int64
	ahead []span // sorted, with gaps between each other and after next
}

// has reports whether an offset is done.
func (p *finished) has(offset int64) bool {
	return offset < p.next || slices.ContainsFunc(p.ahead, func(s span) bool {
		return s.from <= offset && offset < s.to
	})
}

// with returns p with the offsets added, and leaves p unchanged.
func (p *finished) with(from, to int64) finished {
	if from >= to {
		return *p
	}
	added := span{from, to}
	out := finished{next: p.next}
	for _, s := range p.ahead {
		if s.to < added.from || added.to < s.from {
			out.ahead = append(out.ahead, s)
			continue
		}
		added = span{min(s.from, added.from), max(s.to, added.to)}
	}
	if added.from <= out.next {
		out.next = max(out.next, added.to)
		return out
	}
	at := slices.IndexFunc(out.ahead, func(s span) bool { return s.from > added.from })
	if at < 0 {
		at = len(out.ahead)
	}
	out.ahead = slices.Insert(out.ahead, at, added)
	return out
}

// text is the metadata of the committed offset. For each span it has two numbers: how many offsets
// are left out between the span before, or the committed offset, and this span, and how long the
// span is. An example: "onceward-replay/1 2+5 1+1".
func (p *finished) text() string {
	if len(p.ahead) == 0 {
		return ""
	}
	b := []byte(finishedHeader)
	at := p.next
	for _, s := range p.ahead {
		b = append(b, ' ')
		b = strconv.AppendInt(b, s.from-at, 10)
		b = append(b, '+')
		b = strconv.AppendInt(b, s.to-s.from, 10)
		at = s.to
	}
	return string(b)
}

// parseFinished reads a committed offset and its metadata.
func parseFinished(next int64, text string) (finished, error) {
	p := finished{next: next}
	if text == "" {
		return p, nil
	}
	foreign := fmt.Errorf("the metadata of the committed offset is not this command's: %.80q", text)
	fields := strings.Split(text, " ")
	if fields[0] != finishedHeader || len(fields) < 2 || len(text) > maxFinished {
		return p, foreign
	}
	at := next
	for _, field := range fields[1:] {
		left, count, ok := strings.Cut(field, "+")
		a, err1 := strconv.ParseUint(left, 10, 62)
		b, err2 := strconv.ParseUint(count, 10, 62)
		from := at + int64(a) // below 2^62 each
		to := from + int64(b) // an overflow is negative
		if !ok || err1 != nil || err2 != nil || a == 0 || b == 0 || from < at || to < from {
			return p, foreign
		}
		p.ahead = append(p.ahead, span{from, to})
		at = to
	}
	return p, nil
}
