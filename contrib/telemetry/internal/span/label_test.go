package span

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/trace"
)

const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestLabelsAreReadBack(t *testing.T) {
	s := Parse(example)
	assert.True(t, s.IsValid(), "%q became %+v, and that %q", example, s, Label(s))
	assert.True(t, s.IsSampled(), "%q became %+v, and that %q", example, s, Label(s))
	assert.True(t, s.IsRemote(), "%q became %+v, and that %q", example, s, Label(s))
	assert.Equal(t, example, Label(s), "%q became %+v, that", example, s)
	assert.Len(t, example, LabelBytes, "%q became %+v, that", example, s)
	label := Label(s.WithTraceFlags(0))
	assert.Empty(t, label, "a span that is not sampled has the label %q", label)
	assert.Empty(t, Label(trace.SpanContext{}), "no span has the label")
}

// A label that another program made does not parse as a span.
func TestForeignLabels(t *testing.T) {
	for _, label := range []string{
		"", "order 7", example[:54], example + "1", "01" + example[2:], example[:53] + "00",
		strings.ToUpper(example),
		strings.Replace(example, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1),
		strings.Replace(example, "00f067aa0ba902b7", strings.Repeat("0", 16), 1),
		strings.Repeat("\u00e9", 27) + "x",
		strings.Replace(example, "b7-01", "b7x01", 1), example[:35] + "x" + example[36:],
		example[:34] + "g" + example[35:],
	} {
		s := Parse(label)
		assert.False(t, s.IsValid(), "%q became %+v", label, s)
		assert.Empty(t, Links(label), "%q became %+v", label, s)
	}
}
