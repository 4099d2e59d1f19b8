package httpadapter

import (
	"strings"
)

// KeyHeader is the request header that carries the key.
const KeyHeader = "Idempotency-Key"

const maxKeyBytes = 255

// parseKey returns the key in the field lines of a request. The key is a string of RFC 8941, in
// quotes, with or without parameters; or, unless strict is set, the bare value that many clients
// send. If there is no good key, reason completes the sentence that begins with "The
// Idempotency-Key header".
func parseKey(lines []string, strict bool) (key, reason string) {
	if len(lines) != 1 {
		return "", "is there more than once"
	}
	line := strings.Trim(lines[0], " \t")
	switch {
	case line == "":
		return "", "is empty"
	case line[0] == '"':
		var ok bool
		if key, ok = parseString(line); !ok {
			return "", "is not a structured-field string (RFC 8941)"
		}
	case strict:
		return "", "is not in quotes, as a structured-field string (RFC 8941) is"
	case !bare(line):
		return "", "is neither in quotes nor visible ASCII without quotes, commas, semicolons and backslashes"
	default:
		key = line
	}
	switch {
	case key == "":
		return "", "is an empty string"
	case len(key) > maxKeyBytes:
		return "", "is longer than 255 bytes"
	}
	return key, ""
}

// bare reports whether s can be a key without quotes. A comma would begin a second value and a
// semicolon a parameter; quotes and backslashes belong to quoted strings.
func bare(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte(`",\;`, c) >= 0 {
			return false
		}
	}
	return true
}

// parseString parses an Item of RFC 8941 (section 4.2) whose value is a String. Its parameters are
// read and dropped.
func parseString(line string) (string, bool) {
	s, rest, ok := stringItem(line)
	for ok && strings.HasPrefix(rest, ";") {
		rest, ok = parameter(strings.TrimLeft(rest[1:], " "))
	}
	return s, ok && rest == ""
}

// stringItem is 4.2.5.
func stringItem(in string) (s, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(in); i++ {
		switch c := in[i]; {
		case c == '"':
			return b.String(), in[i+1:], true
		case c == '\\':
			if i++; i == len(in) || in[i] != '"' && in[i] != '\\' {
				return "", "", false
			}
			b.WriteByte(in[i])
		case c < ' ' || c > '~':
			return "", "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
	alpha  = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tchars = alpha + digits + "!#$%&'*+-.^_`|~"
)

// span splits s after the longest prefix that consists of these bytes.
func span(s, bytes string) (head, rest string) {
	rest = strings.TrimLeft(s, bytes)
	return s[:len(s)-len(rest)], rest
}

// parameter does one step of the loop in section 4.2.3.2: it reads a key and, after "=", a bare
// item.
func parameter(in string) (rest string, ok bool) {
	if in == "" || strings.IndexByte(lower+"*", in[0]) < 0 {
		return "", false
	}
	_, rest = span(in, lower+digits+"_-.*")
	if !strings.HasPrefix(rest, "=") {
		return rest, true
	}
	return bareItem(rest[1:])
}

// bareItem is 4.2.3.1.
func bareItem(in string) (rest string, ok bool) {
	if in == "" {
		return "", false
	}
	switch c := in[0]; {
	case c == '"':
		_, rest, ok = stringItem(in)
		return rest, ok
	case c == '?':
		return in[min(2, len(in)):], len(in) > 1 && (in[1] == '0' || in[1] == '1')
	case c == ':':
		data, rest, ok := strings.Cut(in[1:], ":")
		_, bad := span(data, alpha+digits+"+/=")
		return rest, ok && bad == ""
	case c == '*' || strings.IndexByte(alpha, c) >= 0:
		_, rest = span(in, tchars+":/")
		return rest, true
	}
	return number(strings.TrimPrefix(in, "-"))
}

// number parses a number as in section 4.2.4, without its sign.
func number(in string) (rest string, ok bool) {
	whole, rest := span(in, digits)
	fraction, isDecimal := strings.CutPrefix(rest, ".")
	if !isDecimal {
		return rest, len(whole) >= 1 && len(whole) <= 15
	}
	fraction, rest = span(fraction, digits)
	return rest, len(whole) >= 1 && len(whole) <= 12 && len(fraction) >= 1 && len(fraction) <= 3
}
