package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// pick returns the text at a dotted path in a JSON object. It reports false if the value is missing
// or null, or the input is not JSON.
func pick(object []byte, path string) (text string, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return "", false
	}
	return find(fields, path)
}

func find(object map[string]json.RawMessage, path string) (text string, ok bool) {
	name, inside, deeper := strings.Cut(path, ".")
	at, ok := object[name]
	if !ok {
		return "", false
	}
	if deeper {
		return pick(at, inside)
	}
	if bytes.Equal(at, []byte("null")) {
		return "", false
	}
	if json.Unmarshal(at, &text) == nil {
		return text, true
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, at)
	return compact.String(), err == nil
}

// layouts are the forms of times in logs, next to numbers since 1970.
var layouts = []string{time.RFC3339Nano, "02/Jan/2006:15:04:05 -0700",
	"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", time.RFC1123Z, time.RFC1123}

// parseTime reads a time. A time without a zone is UTC.
func parseTime(text string) (time.Time, error) {
	if number, err := strconv.ParseFloat(text, 64); err == nil {
		if number > 1e11 { // 1e11 s is in the year 5138: larger numbers are milliseconds
			number /= 1e3
		}
		return time.UnixMilli(int64(number * 1e3)), nil
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time: RFC 3339, 02/Jan/2006:15:04:05 -0700, "+
		"2006-01-02 15:04:05, or seconds or milliseconds since 1970", text)
}
