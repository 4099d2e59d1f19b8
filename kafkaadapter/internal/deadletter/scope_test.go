package deadletter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// headers are pairs of names and values.
type headers []string

// Header implements msgid.Headers.
func (h headers) Header(name string) string {
	for i := 0; i < len(h); i += 2 {
		if h[i] == name {
			return h[i+1]
		}
	}
	return ""
}

// Whatever group and topic are called, the scope can be used, and no two pairs share one.
func TestScopesStayApart(t *testing.T) {
	seen := map[string][2]string{}
	long := strings.Repeat("x", 249)
	hashed := ScopeOf("", "t") // a name may read like the scope of another group or topic
	for _, group := range []string{"g", "g/a", "g/t", "a", "a/b", "ü", "\x00", long, long + "y",
		"", "sha256:", hashed} {
		for _, topic := range []string{"t", "a", "b", "b/c", "a/b", "g/t", hashed, long, "t\n"} {
			scope := ScopeOf(group, topic)
			assert.True(t, msgid.IsScope(scope), scope)
			assert.NotContains(t, seen, scope, "%q and %q", group, topic)
			seen[scope] = [2]string{group, topic}
		}
	}
	assert.Equal(t, "billing/orders", ScopeOf("billing", "orders"))
}

// The headers of a message count in retry topics and nowhere else.
func TestFirstTopic(t *testing.T) {
	letter := headers{FirstTopic, "orders", ID, "m1", Topic, "orders", Scope, "other/orders"}
	mirror := func(topic string) string { return strings.TrimPrefix(topic, "eu.") }
	for name, row := range map[string]struct {
		scopes Scopes
		topic  string
		h      headers
		want   Scoped
		id     string
	}{
		"ordinary": {Scopes{Group: "g"}, "orders", headers{},
			Scoped{"g/orders", "orders"}, ""},
		"forged": {Scopes{Group: "g"}, "payments",
			letter, Scoped{"g/payments", "payments"}, ""},
		"forged beside a retry": {Scopes{Group: "g", Retry: []string{"retry"}}, "payments",
			letter, Scoped{"g/payments", "payments"}, ""},
		"forged in a mirror": {Scopes{Group: "g", TopicName: mirror}, "eu.payments",
			letter, Scoped{"g/payments", "payments"}, ""},
		"retried": {Scopes{Group: "g", Retry: []string{"retry"}}, "retry",
			letter, Scoped{"g/orders", "orders"}, "m1"},
		"not a letter, in a retry": {Scopes{Group: "g", Retry: []string{"retry"}}, "retry",
			headers{ID, "m1"}, Scoped{"g/retry", "retry"}, ""},
		"mirror": {Scopes{Group: "g", TopicName: mirror}, "eu.orders", headers{},
			Scoped{"g/orders", "orders"}, ""},
		"mirror of a retry": {Scopes{Group: "g", TopicName: mirror,
			Retry: []string{"eu.retry"}}, "eu.retry", letter, Scoped{"g/orders", "orders"}, "m1"},
		"no name for the topic": {Scopes{Group: "g", TopicName: func(string) string {
			return ""
		}}, "orders", headers{}, Scoped{"g/orders", "orders"}, ""},
		"explicit": {Scopes{Group: "g", Explicit: "s", Retry: []string{"retry"}},
			"retry", letter, Scoped{"s", "orders"}, "m1"},
		"nothing is claimed": {Scopes{}, "orders", headers{}, Scoped{"", "orders"}, ""},
	} {
		topic := row.scopes.Topic(row.topic)
		assert.Equal(t, row.want, topic.Of(row.h), name)
		id, _ := topic.Fallback(row.h)
		assert.Equal(t, row.id, id, name)
	}
}

// A letter that has lost its value must not run as if it were empty.
func TestRetriedLetterWithoutItsValue(t *testing.T) {
	scopes := Scopes{Group: "g", Retry: []string{"retry"}}
	h := headers{FirstTopic, "orders", Topic, "orders", Partition, "1", Offset,
		"7", TooLarge, "5000"}
	retry, ordinary := scopes.Topic("retry"), scopes.Topic("orders")
	err := retry.Fault(h)
	require.ErrorIs(t, err, ErrNoDeadLetter)
	assert.ErrorContains(t, err, "orders/1@7")
	assert.NoError(t, ordinary.Fault(h))
	whole := headers{FirstTopic, "orders"}
	assert.NoError(t, retry.Fault(whole))
}

// Open looks for the record in the scope that the letter names. Without a record it refuses the
// letter, unless the caller allows that.
func TestOpenReadsTheScope(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "n", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	fail := func(scope string) {
		c, err := d.Claim(t.Context(), "x", dedup.WithScope(scope))
		require.NoError(t, err)
		require.NoError(t, c.Fail(t.Context(), context.Canceled))
	}
	fail("g/orders")
	fail("g/payments")
	letter := headers{Topic, "orders", ID, "x", Scope, "g/orders"}
	topic, err := Open(t.Context(), d, letter, false)
	require.NoError(t, err)
	assert.Equal(t, "orders", topic)
	for scope, want := range map[string]driver.State{"g/orders": driver.StateAbsent,
		"g/payments": driver.StateFailed} {
		rec, err := d.Lookup(t.Context(), "x", dedup.WithScope(scope))
		require.NoError(t, err)
		assert.Equal(t, want, rec.State, scope)
	}
	_, err = Open(t.Context(), d, letter, false)
	require.ErrorIs(t, err, ErrNoRecord)
	_, err = Open(t.Context(), d, letter, true)
	require.NoError(t, err)
}
