package keys

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/driver"
)

func TestReadClue(t *testing.T) {
	const id = "3cfa5a154910aa784941c09b82c104b2"
	for text, want := range map[string]struct {
		id, label, prefix string
		at                *position
		line              bool
	}{
		"order-7":                                {},
		"a b c":                                  {},
		id:                                       {id: id},
		"urn:onceward:" + id:                     {id: id},
		"3CFA5A":                                 {prefix: "3cfa5a"},
		"urn:onceward:3cfa":                      {prefix: "3cfa"},
		"3cf":                                    {},
		"orders/3/77":                            {at: &position{"orders", 3, 77}},
		"orders:3@77":                            {at: &position{"orders", 3, 77}},
		`level=WARN msg="x" key_id=` + id:        {id: id, line: true},
		`{"key_id":"` + id + `","a":1}`:          {id: id, line: true},
		`{"instance":"urn:onceward:` + id:        {id: id, line: true},
		`msg=x label="POST /a \"k1\"" y=1`:       {label: `POST /a "k1"`, line: true},
		`{"label":"stripe evt_1"}`:               {label: "stripe evt_1", line: true},
		"msg=y topic=o partition=3 offset=9":     {at: &position{"o", 3, 9}, line: true},
		`{"topic":"o","partition":3,"offset":9}`: {at: &position{"o", 3, 9}, line: true},
		"partition=99999999999 offset=9":         {},
	} {
		c := readClue(text)
		var ids, labels string
		if len(c.ids) > 0 {
			ids = hex.EncodeToString(c.ids[0][:])
		}
		if len(c.labels) > 0 {
			labels = c.labels[0]
		}
		assert.Equal(t, want.id, ids, text)
		assert.Equal(t, want.label, labels, text)
		assert.Equal(t, want.prefix, c.prefix, text)
		assert.Equal(t, want.at, c.at, text)
		assert.Equal(t, want.line, c.line, text)
	}
}

// A position may be of another topic or group. The digest in the record shows that.
func TestPositionOf(t *testing.T) {
	r := driver.Record{Origin: driver.Origin{Source: "billing/orders", Partition: 3, Offset: 77}}
	at := &position{"orders", 3, 77}
	assert.True(t, at.of(&r, ""))
	assert.True(t, at.of(&r, "billing"))
	assert.False(t, at.of(&r, "shipping"))
	assert.False(t, (&position{"orders", 3, 78}).of(&r, ""))
	assert.False(t, (&position{"orders", 2, 77}).of(&r, ""))
	assert.False(t, (&position{"orders", 0, 0}).of(&driver.Record{}, ""))
	assert.False(t, (*position)(nil).of(&r, ""))
}
