package mcpadapter_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
)

// ran is in the answers of the first and of the second run.
const ran, again = `"run":1`, `"run":2`

// Two calls, and what the second one gets.
func TestKeys(t *testing.T) {
	fields := func(tool mcpadapter.Tool) mcpadapter.Config {
		return mcpadapter.Config{Tools: map[string]mcpadapter.Tool{"charge": tool}}
	}
	byOrder := mcpadapter.Tool{KeyFields: []string{"order"}}
	meta := func(name string, value any, args any) *mcp.CallToolParams {
		return &mcp.CallToolParams{Name: "charge", Arguments: args, Meta: mcp.Meta{name: value}}
	}
	none, op := mcpadapter.Config{}, mcpadapter.Config{MetaKey: "op"}
	required := mcpadapter.Tool{Required: true}
	large := order{Order: "o-1", Amount: 9007199254740992}
	larger := order{Order: "o-1", Amount: 9007199254740993}
	byAmount := mcpadapter.Tool{KeyFields: []string{"amount"}}
	byNote := mcpadapter.Tool{KeyFields: []string{"note"}}
	six := order{Order: "o-1", Amount: 6}
	noted := order{Order: "o-1", Amount: 5, Note: "again"}
	for name, row := range map[string]struct {
		cfg           mcpadapter.Config
		first, second *mcp.CallToolParams
		then          string
	}{
		"one key": {none, call("k", five), call("k", five), ran},
		"the order of the arguments": {none, call("k", rawArgs(`{"order":"o-1","amount":5}`)),
			call("k", rawArgs(`{"amount": 5, "order": "o-1"}`)), ran},
		"another key":     {none, call("k", five), call("l", five), again},
		"no key":          {none, call("", five), call("", five), again},
		"other arguments": {none, call("k", five), call("k", six), "KEY_REUSED"},
		"another tool":    {none, call("k", five), refund("k"), again},
		"not a text": {none, call("k", five), meta("idempotencyKey", 7, five),
			"KEY_MALFORMED"},
		"an empty key": {none, call("k", five), meta("idempotencyKey", "", five),
			"KEY_MALFORMED"},
		"too long a key": {none, call("k", five), call(strings.Repeat("k", 256), five),
			"KEY_MALFORMED"},
		"another field":     {op, meta("op", "k", five), meta("op", "k", five), ran},
		"not the usual one": {op, call("k", five), call("k", five), again},
		"required":          {fields(required), call("k", five), call("", five), "KEY_MISSING"},
		"required by default": {mcpadapter.Config{Default: required}, call("k", five),
			call("", five), "KEY_MISSING"},
		"the default is for others": {mcpadapter.Config{Default: required,
			Tools: map[string]mcpadapter.Tool{"charge": {}}}, call("", five), call("", five),
			again},
		"by fields":            {fields(byOrder), call("", five), call("", five), ran},
		"by fields, not _meta": {fields(byOrder), call("k", five), call("l", five), ran},
		"by fields, two orders": {fields(byOrder), call("k", five),
			call("k", order{Order: "o-2", Amount: 5}), again},
		"by fields, other arguments": {fields(byOrder), call("", five), call("", six),
			"KEY_REUSED"},
		"by fields, a note": {fields(byOrder), call("", five), call("", noted),
			"KEY_REUSED"},
		"by fields, an ignored note": {fields(mcpadapter.Tool{KeyFields: []string{"order"},
			IgnoreFields: []string{"note"}}), call("", five), call("", noted), ran},
		"by fields, empty": {fields(byOrder), call("", order{Amount: 5}),
			call("", order{Amount: 5}), again},
		"by fields, missing": {fields(byNote), call("", five), call("", five), again},
		"by fields, missing, required": {fields(mcpadapter.Tool{KeyFields: []string{"note"},
			Required: true}), call("", noted), call("", five), "KEY_MISSING"},
		"by a number": {fields(byAmount), call("", five), call("", five), ran},
		"by a number in another form": {fields(byAmount), call("", five),
			call("", rawArgs(`{"order":"o-1","amount":5.0}`)), "KEY_MALFORMED"},
		"by large numbers": {fields(byAmount), call("", large), call("", larger), again},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, settings{cfg: row.cfg})
			client := s.client(t)
			assert.Contains(t, send(t, client, row.first), ran)
			assert.Contains(t, send(t, client, row.second), row.then)
		})
	}
}

func rawArgs(text string) any { return jsonText(text) }

type jsonText string

func (j jsonText) MarshalJSON() ([]byte, error) { return []byte(j), nil }

func refund(key string) *mcp.CallToolParams {
	p := call(key, five)
	p.Name = "refund"
	return p
}

// Arguments that do not fit the schema leave no trace of the key: the corrected call runs.
func TestWrongArgumentsLeaveNoTrace(t *testing.T) {
	s := newService(t, settings{})
	client := s.client(t)
	wrong := send(t, client, call("k", rawArgs(`{"order":"o-1","amount":"five"}`)))
	assert.Contains(t, wrong, `validating \"arguments\"`)
	assert.Contains(t, wrong, `"isError":true`)
	ofSDK := send(t, client, call("", rawArgs(`{"order":"o-1","amount":"five"}`)))
	assert.Equal(t, strings.Replace(ofSDK, `,"resultType":"complete"`, "", 1), wrong)
	assert.Contains(t, send(t, client, call("k", five)), ran)
}

// Two users with one key are two calls; a call of nobody is refused.
func TestPrincipals(t *testing.T) {
	s := newService(t, settings{principal: mcpadapter.TokenUser})
	ann, bob := s.overHTTP(t, "ann"), s.overHTTP(t, "bob")
	first := send(t, ann, call("k", five))
	assert.Contains(t, first, ran)
	assert.Contains(t, send(t, bob, call("k", five)), again)
	assert.Equal(t, first, send(t, s.overHTTP(t, "ann"), call("k", five)))
	assert.Equal(t, "NO_PRINCIPAL", send(t, s.client(t), call("k", five)))
	assert.EqualValues(t, 2, s.runs.Load())

	failing := func(context.Context, *mcp.CallToolRequest) (string, error) {
		return "", errors.New("the directory is down")
	}
	s = newService(t, settings{principal: failing})
	assert.Equal(t, "STORE_UNAVAILABLE", send(t, s.client(t), call("k", five)))
	assert.Zero(t, s.runs.Load())
}

// Scopes that differ in any part are different, and show none of their parts.
func TestScopes(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range []mcpadapter.RecordKey{
		{Name: "a", Principal: "b", Tool: "c"}, {Name: "ab", Tool: "c"}, {Name: "a", Tool: "bc"},
		{Name: `a" "b`, Tool: "c"}, {Name: "a\xff", Tool: "c"}, {Name: "a\xfe", Tool: "c"},
		{Name: "a", Principal: "b", Tool: "d"},
	} {
		seen[k.Scope()] = true
		_, err := mcpadapter.RecordKey{Name: k.Name, Key: "k"}.ID("mcp")
		assert.NoError(t, err)
	}
	assert.Len(t, seen, 7)
	_, err := mcpadapter.RecordKey{Name: "a"}.ID("mcp")
	var input *dedup.InputError
	assert.ErrorAs(t, err, &input, "a record without a key")
}

// The label that an operator sees is accepted whatever the names are.
func TestLabels(t *testing.T) {
	s := newService(t, settings{dedup: func(c *dedup.Config) { c.Labels = true }})
	key := strings.Repeat("ключ", 25)
	assert.Contains(t, send(t, s.client(t), call(key, five)), ran)
	rec, err := s.d.Lookup(t.Context(), key, dedup.WithScope(
		mcpadapter.RecordKey{Name: "payments", Tool: "charge"}.Scope()))
	assert.NoError(t, err)
	assert.True(t, strings.HasPrefix(rec.Label, `charge \u043a`), "%q", rec.Label)
}

// A key that an error has freed is bound to its arguments, for dedup.Config.Hold.
func TestReleasedKeyStaysBoundToItsArguments(t *testing.T) {
	s := newService(t, settings{hints: idempotent, handle: func(_ context.Context,
		_ *mcp.CallToolRequest, run int64) (*mcp.CallToolResult, error) {
		if run == 1 {
			return nil, errLost
		}
		return nil, nil
	}})
	client := s.client(t)
	assert.Contains(t, send(t, client, call("k", five)), "reset")
	assert.Equal(t, "KEY_REUSED", send(t, client, call("k", order{Order: "o-2"})))
	assert.Contains(t, send(t, client, call("k", five)), `"run":2`)
}
