package stream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
)

// maxLine bounds a line of NDJSON: what Kafka takes by default, in bytes.
const maxLine = 1 << 20

// ReadNDJSON reads one record per line. The id is the string or number at path, whose
// names are separated by dots. Blank lines count and are skipped. An error names the
// line, and never quotes it.
func ReadNDJSON(r io.Reader, path string) ([]Record, error) {
	if path == "" {
		return nil, errors.New("no key field is named")
	}
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxLine)
	var records []Record
	line := 0
	for scan.Scan() {
		line++
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		id, err := idOf(text, path)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		records = append(records, Record{ID: id, Key: id, Value: bytes.Clone(text)})
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: is longer than %d bytes", line+1, maxLine)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	if len(records) == 0 {
		return nil, errors.New("holds no message")
	}
	return records, nil
}

func idOf(text []byte, path string) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // 64-bit ids do not fit a float
	var value any
	if err := dec.Decode(&value); err != nil {
		return "", fmt.Errorf("is not JSON: %w", err)
	}
	if dec.More() {
		return "", errors.New("has more than one JSON value")
	}
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if ok {
			value, ok = object[name]
		}
		if !ok {
			return "", fmt.Errorf("has no field %q", path)
		}
	}
	var id string
	switch v := value.(type) {
	case string:
		id = v
	case json.Number:
		id = v.String()
	default:
		return "", fmt.Errorf("field %q is neither a string nor a number", path)
	}
	if _, err := driver.NewID("demo", "", id); err != nil {
		return "", fmt.Errorf("field %q cannot be an id: %w", path, err)
	}
	return id, nil
}

// Rebound returns how many ids occur with more than one payload. Only the first
// payload of such an id has an effect.
func Rebound(records []Record) int {
	first := make(map[string][]byte, len(records))
	rebound := make(map[string]bool)
	for _, r := range records {
		if v, ok := first[r.ID]; !ok {
			first[r.ID] = r.Value
		} else if !bytes.Equal(v, r.Value) {
			rebound[r.ID] = true
		}
	}
	return len(rebound)
}
