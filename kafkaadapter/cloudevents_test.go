package kafkaadapter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// structured is an event in structured mode.
func structured(contentType, value string) *Message {
	m := headers("content-type", contentType)
	m.Value = []byte(value)
	return m
}

// Different events have different ids, whatever is in their source.
func TestCloudEventsAreTold(t *testing.T) {
	a, _ := CloudEvents()(headers("ce_source", "a b", "ce_id", "c"))
	b, _ := CloudEvents()(headers("ce_source", "a", "ce_id", "b c"))
	assert.NotEqual(t, a, b, "two events have one id")
}

func TestStructuredCloudEvents(t *testing.T) {
	const kind = "application/cloudevents+json"
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for _, c := range []struct {
		name, kind, value string
		want              string // "" for none
	}{
		{"event", kind, `{"specversion":"1.0","type":"t","source":"/shop","id":"7",` +
			`"data":{"id":"8","source":"/other"}}`, "/shop 7"},
		{"data first", kind, `{"data":{"id":"8","source":"/other"},"id":"7","source":"/shop"}`,
			"/shop 7"},
		{"parameters of the type", "Application/CloudEvents+JSON; charset=UTF-8",
			`{"source":"/shop","id":"7"}`, "/shop 7"},
		{"white space", kind, " {\n\t\"source\" : \"/shop\", \"id\" : \"7\" }\n", "/shop 7"},
		{"escaped name and text", kind, `{"sourc\u0065":"\u002fshop","id":"\u0037"}`, "/shop 7"},
		{"space in the source", kind, `{"source":"a b","id":"c"}`, "a%20b c"},
		{"deep data", kind, `{"source":"/shop","id":"7","data":` + deep + `}`, "/shop 7"},
		{"without source", kind, `{"id":"7"}`, ""},
		{"without id", kind, `{"source":"/shop"}`, ""},
		{"source in data alone", kind, `{"id":"7","data":{"source":"/shop"}}`, ""},
		{"empty id", kind, `{"source":"/shop","id":""}`, ""},
		{"null id", kind, `{"source":"/shop","id":null}`, ""},
		{"id is a number", kind, `{"source":"/shop","id":7}`, ""},
		{"source is an object", kind, `{"source":{},"id":"7"}`, ""},
		{"names of another case", kind, `{"Source":"/shop","ID":"7"}`, ""},
		{"name of another case beside", kind, `{"source":"/shop","id":"7","ID":"8"}`, "/shop 7"},
		{"id twice", kind, `{"source":"/shop","id":"7","id":"8"}`, ""},
		{"id twice, once null", kind, `{"source":"/shop","id":null,"id":"8"}`, ""},
		{"not UTF-8", kind, "{\"source\":\"/shop\",\"id\":\"\xff\"}", ""},
		{"half a surrogate", kind, `{"source":"/shop","id":"\ud800"}`, ""},
		{"cut", kind, `{"source":"/shop","id":"7","data":{`, ""},
		{"followed by something", kind, `{"source":"/shop","id":"7"} {}`, ""},
		{"a trailing comma", kind, `{"source":"/shop","id":"7",}`, ""},
		{"an array", kind, `[{"source":"/shop","id":"7"}]`, ""},
		{"a string", kind, `"id"`, ""},
		{"no value", kind, "", ""},
		{"batch", "application/cloudevents-batch+json", `[{"source":"/shop","id":"7"}]`, ""},
		{"other type", "application/json", `{"source":"/shop","id":"7"}`, ""},
		{"no type", "", `{"source":"/shop","id":"7"}`, ""},
		{"other format", "application/cloudevents+avro", `{"source":"/shop","id":"7"}`, ""},
	} {
		id, ok := CloudEvents()(structured(c.kind, c.value))
		assert.Equal(t, c.want, id, c.name)
		assert.Equal(t, c.want != "", ok, c.name)
	}
}

// CloudEvents ignores the headers of a batch, and those of a JSON event even if it cannot read the
// value. It reads the headers for all other content types.
func TestStructuredCloudEventsWithHeaders(t *testing.T) {
	for kind, want := range map[string]string{
		"application/cloudevents+json":       "/shop 7",
		"application/cloudevents+avro":       "/stale 1",
		"application/cloudevents-batch+json": "",
		"application/json":                   "/stale 1",
	} {
		m := structured(kind, `{"source":"/shop","id":"7"}`)
		m.headers = append(m.headers, headers("ce_source", "/stale", "ce_id", "1").headers...)
		id, _ := CloudEvents()(m)
		assert.Equal(t, want, id, kind)
	}
	m := structured("application/cloudevents+json", "{")
	m.headers = append(m.headers, headers("ce_source", "/stale", "ce_id", "1").headers...)
	_, ok := CloudEvents()(m)
	assert.False(t, ok, "found in headers next to a broken value")
}

// FuzzStructuredCloudEvents: an id that CloudEvents finds agrees with what encoding/json reads, and
// equals the id of the same event in binary mode.
func FuzzStructuredCloudEvents(f *testing.F) {
	for _, seed := range []string{
		`{"specversion":"1.0","source":"/shop","id":"7","data":{"id":"8"}}`,
		`{"id":"\u00e9","source":"a b"}`,
		`{"source":"/shop","id":"7","id":"8"}`, `{"source":1,"id":null}`, `[]`,
		`{`, "", `{"source":"s","id":"7"}x`, `{"id":"7","source":"s",}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		m := headers("content-type", "application/cloudevents+json")
		m.Value = value
		id, ok := CloudEvents()(m)
		var event map[string]any
		err := json.Unmarshal(value, &event)
		if !ok {
			assert.Empty(t, id)
			return
		}
		source, _ := event["source"].(string)
		own, _ := event["id"].(string)
		want, there := CloudEvents()(headers("ce_source", source, "ce_id", own))
		assert.True(t, err == nil && there && id == want, "found %q, encoding/json %q and %q, %v",
			id, source, own, err)
	})
}

func BenchmarkStructuredCloudEvents(b *testing.B) {
	m := structured("application/cloudevents+json",
		`{"specversion":"1.0","type":"t","source":"/shop","id":"7","data":{"text":"`+
			strings.Repeat("x", 1000)+`"}}`)
	find := CloudEvents()
	b.ReportAllocs()
	for b.Loop() {
		find(m)
	}
}
