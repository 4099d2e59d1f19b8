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

// maxLine is how long a line of a file may be.
const maxLine = 16 << 20

// readFile reads lines from where an earlier run has ended, and moves next behind what was yielded.
// Lines that are not of the form are counted as messages without an id.
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

// readLine returns a line with its end.
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

// line takes a line apart. A time that cannot be read is an error: all of them would be.
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

// fields returns the lookup of a line's fields: of JSON by paths, of other lines by the names of
// groups in the pattern.
func (o *Options) fields(line string) func(name string) (string, bool) {
	if o.pattern == nil {
		var object map[string]json.RawMessage
		_ = json.Unmarshal([]byte(line), &object) // where it is not JSON there is no field
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
