package mcpadapter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceward/onceward/dedup/driver"
)

// RecordKey names a tool call as the middleware does, so that an operator finds its record: with
// [RecordKey.ID] in a [dedup.Store], and with Key and [RecordKey.Scope] through a Deduper or a
// sqladapter.Ledger.
type RecordKey struct {
	// Name is Config.Name.
	Name string
	// Principal is what the [Principal] returns; empty for [Unscoped].
	Principal string
	// Tool is the tool's name.
	Tool string
	// Key is the value in _meta. If KeyFields makes the key, a tool finds it in
	// [dedup.Attempt].Key.
	Key string
}

// Scope returns the scope of the key: a digest, so that nothing of the principal is in clear.
func (k RecordKey) Scope() string {
	// quoted, so that the end of each part is clear, whatever its bytes are
	return digest(fmt.Sprintf("mcp 1 %q %q %q", k.Name, k.Principal, k.Tool))
}

// ID returns the ID of the record in namespace, which is that of the Runner. A namespace or a Key
// that no record can have is an [*driver.InputError].
func (k RecordKey) ID(namespace string) (driver.ID, error) {
	return driver.NewID(namespace, k.Scope(), k.Key)
}

// label describes the key for a Deduper with Labels. Labels are printable and have at most 64
// bytes.
func (k RecordKey) label() string {
	quoted := strconv.QuoteToASCII(k.Tool + " " + k.Key)
	return quoted[1:min(len(quoted)-1, 64)]
}

// digest returns the digest of a value's JSON, whose names are sorted.
func digest(value any) string {
	text, _ := json.Marshal(value) // value is a text, or was read by parse
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// parse reads the arguments of a call. Absent arguments count as an empty object, as in the SDK.
func parse(raw json.RawMessage) (args map[string]any, err error) {
	if len(raw) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber() // as float64, two large order numbers could become one key
		err = decoder.Decode(&args)
	}
	return args, err
}

// fingerprint digests all arguments that the tool does not ignore.
func (t *Tool) fingerprint(args map[string]any) driver.Fingerprint {
	compared := map[string]any{}
	for name, value := range args {
		if !slices.Contains(t.IgnoreFields, name) {
			compared[name] = value
		}
	}
	return driver.FingerprintOf([]byte(digest(compared)))
}

// key returns the key of a call, or "" if it has none. If the call has something that cannot be a
// key, reason says why.
func (t *Tool) key(p *mcp.CallToolParamsRaw, args map[string]any,
	metaKey string) (key, reason string) {
	if len(t.KeyFields) == 0 {
		value, there := p.Meta[metaKey]
		key, isText := value.(string)
		if there && (!isText || key == "") {
			return "", "in _meta." + metaKey + " is not a text, or is empty"
		}
		return key, ""
	}
	named := map[string]any{}
	for _, name := range t.KeyFields {
		number, isNumber := args[name].(json.Number)
		// 10.0 and 1e1 would be two keys for the same amount
		whole := isNumber && !strings.ContainsAny(number.String(), ".eE")
		switch text, isText := args[name].(string); {
		case args[name] == nil, isText && text == "": // a model writes "" for what it does not know
			return "", ""
		case !isText && !whole:
			return "", "made of " + name + " is not a text or a whole number"
		}
		named[name] = args[name]
	}
	return "fields-" + digest(named), ""
}
