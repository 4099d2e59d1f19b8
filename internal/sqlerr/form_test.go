package sqlerr

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Prevents: "drop it", the advice for a table of another form, is the answer to a missing right, to
// a server that is read-only, to a timeout, or to anything that nobody has thought of.
func TestOtherFormNeedsAProof(t *testing.T) {
	for _, err := range []error{
		nil, context.Canceled, io.EOF, pgError("42501"), pgError("42P01"), pgError("25006"),
		pgError("57014"), pgError("53200"), pgError("XX001"), pgError("57P01"), my(1142), my(1044),
		my(1045), my(1143), my(1146), my(1290),
		my(1317), my(1969), liteError(8), liteError(23),
	} {
		assert.False(t, OtherForm(err), "%v", err)
	}
	for _, err := range []error{
		pgError("42703"), pgError("42804"), pgError("42809"), pgError("22P02"), my(1054),
		my(1176), liteError(1), errors.New("sql: Scan error on column index 0"),
	} {
		assert.True(t, OtherForm(err), "%v", err)
	}
}

func TestNeedsRight(t *testing.T) {
	for _, denied := range []error{pgError("42501"), my(1142), my(1044)} {
		err := NeedsRight(denied, "SELECT on t")
		assert.ErrorIs(t, err, denied)
		assert.ErrorContains(t, err, "the role needs SELECT on t")
	}
	other := pgError("25006")
	assert.Equal(t, other, NeedsRight(other, "SELECT on t"))
	assert.NoError(t, NeedsRight(nil, "SELECT on t"))
}
