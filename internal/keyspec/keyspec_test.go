package keyspec

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

func TestResolve(t *testing.T) {
	plain, err := driver.NewID("shop", "eu", "k")
	require.NoError(t, err)
	s := Spec{Namespace: "shop", Key: "k", Scope: "eu"}
	id, err := s.Resolve()
	require.NoError(t, err)
	assert.Equal(t, plain, id)

	want, err := httpadapter.RecordKey{Method: "POST", Route: "api.example/pay",
		Key: "k"}.ID("shop")
	require.NoError(t, err)
	for _, url := range []string{"https://api.example/pay", "http://API.example:80/%70ay?x=1",
		"https://api.example.:443/pay"} {
		s = Spec{Namespace: "shop", Key: "k", Method: "post", URL: url}
		id, err = s.Resolve()
		require.NoError(t, err)
		assert.Equal(t, want, id, url)
	}
}

func TestResolveRefuses(t *testing.T) {
	for field, specs := range map[string][]Spec{
		"scope": {{Scope: "eu", GRPC: "/a/b"}, {GRPC: "/a/b", Provider: "stripe"},
			{Method: "POST", Provider: "stripe"}},
		"method": {{URL: "https://a/b"}, {Principal: "alice"}},
		"url": {{Method: "POST"}, {Method: "POST", URL: "a/b"},
			{Method: "POST", URL: "https://a/b", Route: "b"}},
		"grpc":       {{GRPC: "pay.Pay/Charge"}},
		"webhook":    {{Endpoint: "billing"}},
		"endpoint":   {{Provider: "stripe"}},
		"event-type": {{Provider: "stripe", Endpoint: "billing", EventType: "push"}},
	} {
		for _, s := range specs {
			s.Namespace, s.Key = "shop", "k"
			_, err := s.Resolve()
			var fault *Error
			require.ErrorAs(t, err, &fault, "%+v", s)
			assert.Equal(t, field, fault.Field)
		}
	}
}
