package msgid

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"
	"unicode/utf8"
)

// CloudEvents takes the id from an event in the Kafka protocol binding of CloudEvents 1.0.
func CloudEvents(h Headers, value []byte) (string, bool) {
	var source, id string
	switch kind := mediaType(h.Header("content-type")); {
	case strings.HasPrefix(kind, "application/cloudevents-batch"):
		return "", false
	case kind == "application/cloudevents+json":
		source, id = structuredEvent(value)
	default:
		source, id = h.Header("ce_source"), h.Header("ce_id")
	}
	if source == "" || id == "" {
		return "", false
	}
	// A source is a URI reference, which writes a space as %20. If a bare space were kept, "a b"
	// with "c" could be taken for "a" with "b c", and one of the two would be skipped.
	return strings.ReplaceAll(source, " ", "%20") + " " + id, true
}

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// structuredEvent reads source and id of an event in JSON. If one of the two is missing, it is
// empty; if one occurs twice, both are empty. encoding/json with a struct would also match "ID",
// and take the last of two.
func structuredEvent(value []byte) (source, id string) {
	if !bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("{")) || !json.Valid(value) {
		return "", ""
	}
	name, names := "", 0
	for text, isName := range outerStrings(value) {
		switch {
		case isName:
			if name = unquote(text); name == "source" || name == "id" {
				names++
			}
		case name == "source":
			source = unquote(text)
		case name == "id":
			id = unquote(text)
		}
	}
	if names != 2 {
		return "", ""
	}
	return source, id
}

// outerStrings returns the strings of the outermost object of valid JSON, as they are written, and
// whether each is the name of a member. Nothing is decoded.
func outerStrings(object []byte) iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		depth, named := 0, false
		for i := 0; i < len(object); i++ {
			switch c := object[i]; {
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				depth--
			case c == ',' && depth == 1:
				named = false
			case c == '"':
				end := endOfString(object, i)
				if depth == 1 {
					if !yield(object[i:end], !named) {
						return
					}
					named = true
				}
				i = end - 1
			}
		}
	}
}

// endOfString returns the index after the string that begins at i.
func endOfString(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote reads a JSON string. A string that is not valid Unicode becomes empty: every invalid part
// would read as U+FFFD, and two different ids could become one.
func unquote(text []byte) string {
	s := string(text[1 : len(text)-1])
	if strings.Contains(s, `\`) && json.Unmarshal(text, &s) != nil ||
		strings.ContainsRune(s, utf8.RuneError) {
		return ""
	}
	return s
}
