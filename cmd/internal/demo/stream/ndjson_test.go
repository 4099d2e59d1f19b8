package stream

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadNDJSON(t *testing.T) {
	const text = "{\"data\":{\"id\":\"a\"}}\n\n  {\"data\":{\"id\":9007199254740993},\"x\":1}  \r\n{\"data\":{\"id\":\"a\"},\"x\":2}"
	records, err := ReadNDJSON(strings.NewReader(text), "data.id")
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 3 || records[0].ID != "a" || records[1].ID != "9007199254740993" ||
		records[2].ID != "a" {
		t.Fatalf("%+v", records)
	}
	if got := string(records[1].Value); got != `{"data":{"id":9007199254740993},"x":1}` {
		t.Errorf("value %s", got)
	}
	if n := Rebound(records); n != 1 {
		t.Errorf("%d ids with more than one payload, want 1", n)
	}
}

func TestReadNDJSONRefuses(t *testing.T) {
	const good = "{\"id\":\"a\"}\n"
	for name, test := range map[string]struct{ text, path, want string }{
		"no path":        {good, "", "no key field"},
		"empty":          {"\n\n", "id", "holds no message"},
		"not JSON":       {good + "hello", "id", "line 2: is not JSON"},
		"cut":            {good + "\n{\"id\":", "id", "line 3: is not JSON"},
		"two values":     {"{\"id\":1} {\"id\":2}", "id", "line 1: has more than one JSON value"},
		"no field":       {good + "{\"di\":\"b\"}", "id", `line 2: has no field "id"`},
		"no inner field": {"{\"data\":{}}", "data.id", `line 1: has no field "data.id"`},
		"not an object":  {"{\"data\":5}", "data.id", `line 1: has no field "data.id"`},
		"an array":       {"[1]", "id", `line 1: has no field "id"`},
		"null":           {"{\"id\":null}", "id", "neither a string nor a number"},
		"object":         {"{\"id\":{}}", "id", "neither a string nor a number"},
		"empty id":       {"{\"id\":\"\"}", "id", "line 1: field \"id\" cannot be an id"},
		"long id":        {"{\"id\":\"" + strings.Repeat("x", 256) + "\"}", "id", "256 bytes"},
		"control":        {"{\"id\":\"a\\u0000\"}", "id", "non-printable"},
		"long line": {good + "{\"id\":\"" + strings.Repeat("x", maxLine) + "\"}", "id",
			"line 2: is longer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadNDJSON(strings.NewReader(test.text), test.path)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestReadNDJSONReadError(t *testing.T) {
	broken := errors.New("disk is gone")
	if _, err := ReadNDJSON(iotest.ErrReader(broken), "id"); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// FuzzReadNDJSON: whatever a file holds, every record that comes out of it has an id.
func FuzzReadNDJSON(f *testing.F) {
	f.Add("{\"id\":\"a\"}\n{\"id\":1e5}", "id")
	f.Add("{\"a\":{\"b\":\"c\"}}", "a.b")
	f.Add("{\"\":\"c\"}", ".")
	f.Fuzz(func(t *testing.T, text, path string) {
		records, err := ReadNDJSON(strings.NewReader(text), path)
		if (err == nil) == (len(records) == 0) {
			t.Fatalf("%d records, error %v", len(records), err)
		}
		for _, r := range records {
			if r.ID == "" || len(r.ID) > 255 || len(r.Value) == 0 {
				t.Fatalf("record %+v", r)
			}
		}
	})
}
