package sqladapter

import (
	sqldriver "database/sql/driver"
	"errors"
	"testing"

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
				if errors.As(err, &input) != (tt.field != "") ||
					input != nil && input.Field != tt.field {
					t.Errorf("SaveResultTx = %v, want an InputError on %q", err, tt.field)
				}
				if !errors.Is(err, tt.err) && tt.err != nil ||
					(err == nil) != (tt.err == nil && tt.field == "") {
					t.Errorf("SaveResultTx = %v, want %v", err, tt.err)
				}
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
		if string(mark.Result) != want || (err == nil) != (want != "") {
			t.Errorf("payload %q: result %q, %v; want %q", payload, mark.Result, err, want)
		}
	}
}
