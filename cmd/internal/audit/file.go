package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxLine is the longest line of a file that is read, in bytes.
const maxLine = 16 << 20

// readFile reads lines from where an earlier run has ended, and moves next past each line that
// yield has accepted. A line of another form counts as a message without an id.
func (o *Options) readFile(ctx context.Context, next map[int32]int64,
	yield func(*message) bool) (bool, error) {
	in, err := o.openFile(next[0])
	if err != nil {
		return false, err
	}
	defer in.Close() //nolint:errcheck // it was read
	lines := bufio.NewReaderSize(in, 1<<20)
	for number := 1; ; number++ {
		line, err := readLine(lines)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		ended := errors.Is(err, io.EOF)
		if err == nil || ended && line != "" {
			m, bad := o.line(line)
			if bad != nil {
				return false, fmt.Errorf("--file %s: line %d: %w", o.File, number, bad)
			}
			m.place = fmt.Sprintf("byte %d", next[0])
			if !yield(m) {
				return false, nil
			}
			next[0] += int64(len(line))
		}
		switch {
		case ended:
			return true, nil
		case err != nil:
			return false, fmt.Errorf("--file %s: line %d: %w", o.File, number, err)
		}
	}
}

func (o *Options) openFile(from int64) (io.ReadCloser, error) {
	if o.File == "-" {
		return io.NopCloser(o.stdin), nil
	}
	f, err := os.Open(o.File)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() < from {
		err = fmt.Errorf("--file %s has %d bytes, and --state has read %d: it is another one by now",
			o.File, info.Size(), from)
	}
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// readLine returns a line with its line break.
func readLine(in *bufio.Reader) (string, error) {
	var line strings.Builder
	for {
		part, err := in.ReadSlice('\n')
		line.Write(part)
		switch {
		case !errors.Is(err, bufio.ErrBufferFull):
			return line.String(), err
		case line.Len() > maxLine:
			return "", fmt.Errorf("it is longer than %d MiB", maxLine>>20)
		}
	}
}

// line parses a line. A time that cannot be read is an error, because no other line's time could be
// read either.
func (o *Options) line(text string) (*message, error) {
	m, get := &message{}, o.fields(strings.TrimRight(text, "\r\n"))
	m.id, _ = get(o.ID)
	if at, ok := get(o.Time); ok {
		var err error
		if m.time, err = parseTime(at); err != nil {
			return nil, fmt.Errorf("--time %s: %w", o.Time, err)
		}
	}
	if o.Payload != "" && o.Payload != none {
		payload, _ := get(o.Payload)
		m.payload = []byte(payload)
	}
	return m, nil
}

// fields returns a function that looks up a line's fields: by path in JSON, otherwise by the name
// of a group in the pattern.
func (o *Options) fields(line string) func(name string) (string, bool) {
	if o.pattern == nil {
		var object map[string]json.RawMessage
		_ = json.Unmarshal([]byte(line), &object) // a line that is not JSON has no fields
		return func(path string) (string, bool) { return find(object, path) }
	}
	groups := o.pattern.FindStringSubmatch(line)
	return func(name string) (string, bool) {
		i := o.pattern.SubexpIndex(name)
		if groups == nil || i < 0 || groups[i] == "" || groups[i] == "-" {
			return "", false
		}
		return groups[i], true
	}
}
