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

// finished holds which offsets of a partition are done. The first span begins at 0 and ends at the
// offset to commit. The others are ahead of it, sorted and with gaps.
type finished []span

// next is the first offset that is not done.
func (p finished) next() int64 { return p[0].to }

// has reports whether an offset is done.
func (p finished) has(offset int64) bool {
	return slices.ContainsFunc(p, func(s span) bool { return s.from <= offset && offset < s.to })
}

// with returns p with the offsets added, and leaves p unchanged.
func (p finished) with(from, to int64) finished {
	if from >= to {
		return p
	}
	var out finished
	added := span{from, to}
	for _, s := range p {
		switch {
		case s.to < added.from:
			out = append(out, s)
		case added.to < s.from:
			out, added = append(out, added), s
		default:
			added = span{min(s.from, added.from), max(s.to, added.to)}
		}
	}
	return append(out, added)
}

// text is the metadata of the committed offset. For each span ahead it has two numbers: how many
// offsets are left out between the span before and this span, and how long this span is. An
// example: "onceward-replay/1 2+5 1+1".
func (p finished) text() string {
	if len(p) == 1 {
		return ""
	}
	text := []byte(finishedHeader)
	for i, s := range p[1:] {
		text = fmt.Appendf(text, " %d+%d", s.from-p[i].to, s.to-s.from)
	}
	return string(text)
}

// parseFinished reads a committed offset and its metadata.
func parseFinished(next int64, text string) (finished, error) {
	p := finished{{0, next}}
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
		p = append(p, span{from, to})
		at = to
	}
	return p, nil
}
