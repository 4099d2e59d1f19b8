package redisscript

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// maxPrefix bounds the prefix of keys.
const maxPrefix = 64

// ClientProblem says what is wrong with a client, or nothing. The caller's error puts
// "client" in front.
func ClientProblem(client redis.UniversalClient) string {
	missing := client == nil
	switch c := client.(type) {
	case *redis.Client:
		missing = c == nil
	case *redis.ClusterClient:
		missing = c == nil
	case *redis.Ring:
		return "is a Ring, which moves keys to other servers when one is down and so forgets claims"
	}
	if missing {
		return "is nil"
	}
	return ""
}

// PrefixProblem says what is wrong with the prefix of keys, or nothing: 1-64 bytes of
// letters, digits, '_', '.', '-'. Braces would move the keys' Cluster slots.
func PrefixProblem(prefix string) string {
	if prefix == "" {
		return "is empty"
	}
	if len(prefix) > maxPrefix {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		c := prefix[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-' {
			continue
		}
		return fmt.Sprintf("has %q at byte %d; letters, digits, '_', '.' and '-' are allowed", c, i)
	}
	return ""
}
