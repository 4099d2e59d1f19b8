package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// members returns the members of a JSON object that have one of the names, each as it is written
// and not decoded. (If type and id were decoded together, an odd id would lose the type, and
// encoding/json also accepts names in another case.) A body that is not a JSON object has no
// members. A name that occurs twice is an error, because sender and receiver might read different
// members.
func members(body []byte, names ...string) (map[string]json.RawMessage, error) {
	return membersOf(body, false, names)
}

// exactMembers refuses a name in another case as well. It is for a body of which the signature
// covers only these members: encoding/json in a handler would read the other spelling, too.
func exactMembers(body []byte, names ...string) (map[string]json.RawMessage, error) {
	return membersOf(body, true, names)
}

func membersOf(body []byte, exact bool, names []string) (map[string]json.RawMessage, error) {
	found := map[string]json.RawMessage{}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil
	}
	for dec.More() {
		token, _ := dec.Token()
		name, isName := token.(string)
		var value json.RawMessage
		if !isName || dec.Decode(&value) != nil {
			return nil, nil
		}
		if !slices.Contains(names, name) {
			if exact && slices.ContainsFunc(names, func(n string) bool {
				return strings.EqualFold(n, name)
			}) {
				return nil, bad("body", "has the member %q, which differs by case alone", name)
			}
			continue
		}
		if _, twice := found[name]; twice {
			return nil, bad("body", "has the member %q twice", name)
		}
		found[name] = value
	}
	if _, err := dec.Token(); err != nil { // }
		return nil, nil
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil
	}
	return found, nil
}

// text returns a member that is a string, and "" for any other member and for a string that is not
// readable.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil || !readable(s) {
		return ""
	}
	return s
}

// readable reports whether s differs from all other strings: encoding/json turns bytes that are not
// UTF-8, and halves of surrogates, into U+FFFD, so that two ids would become one.
func readable(s string) bool { return !strings.ContainsRune(s, utf8.RuneError) }

// textOrNumber returns a member that is a string or a number; a number as it is written.
func textOrNumber(raw json.RawMessage) string {
	var number json.Number
	if len(raw) > 0 && raw[0] != '"' && json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return text(raw)
}
