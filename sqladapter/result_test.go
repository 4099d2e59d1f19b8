package sqladapter

import (
	sqldriver "database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func TestSaveResultTx(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite, MySQL} {
		m := newMarks(t, d)
		e, err := m.entry("k", nil)
		require.NoError(t, err)
		save := m.dialect.save(e, []byte("receipt")).text
		done := Step{Query: save, Affected: 1, Rows: func([]any) [][]sqldriver.Value {
			return [][]sqldriver.Value{{e.id[:]}}
		}}
		for name, tt := range map[string]struct {
			step  Step
			field string
			err   error
		}{
			"saved":   {step: done},
			"no mark": {step: Step{Query: save}, field: "key"},
			"busy":    {step: Step{Query: save, Err: codeError("55P03")}, err: dedup.ErrInFlight},
			"no answer": {step: Step{Query: save, Err: codeError("40001")},
				err: codeError("40001")},
		} {
			t.Run(d.String()+"/"+name, func(t *testing.T) {
				tx, _ := beginScript(t, tt.step)
				err := m.SaveResultTx(t.Context(), tx, "k", []byte("receipt"))
				var input *dedup.InputError
				require.Equal(t, tt.field != "", errors.As(err, &input))
				assert.False(t, input != nil && input.Field != tt.field, "%v", tt.field)
				assert.False(t, !errors.Is(err, tt.err) && tt.err != nil, "%v", err)
				assert.Equal(t, tt.err == nil && tt.field == "", err == nil)
			})
		}
	}
}

// A duplicate comes with the saved result; one with another payload does not see it.
func TestResultOfADuplicate(t *testing.T) {
	m := newMarks(t, SQLite)
	f := driver.FingerprintOf([]byte("body"))
	found := Step{Query: loadText(m), Rows: func(args []any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{args[0], at(1, 9), f[:], int64(1000), int64(1000),
			[]byte("receipt")}}
	}}
	for payload, want := range map[string]string{"body": "receipt", "another": ""} {
		tx, _ := beginScript(t, Step{Query: insertText(m)}, found)
		mark, err := m.MarkTx(t.Context(), tx, "k", dedup.WithFingerprint([]byte(payload)))
		assert.Equal(t, want, string(mark.Result), "payload %q: result", payload)
		assert.Equal(t, want != "", err == nil, "payload %q: result", payload)
	}
}
