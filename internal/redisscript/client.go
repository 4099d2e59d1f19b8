package redisscript

import (
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// maxPrefix bounds the prefix of keys.
const maxPrefix = 64

// ClientProblem returns what is wrong with a client, or the empty string. The caller's error puts
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
	if holdsRing(reflect.ValueOf(client), 0) {
		return "wraps a Ring, which moves keys to other servers when one is down and so forgets claims"
	}
	return ""
}

// wrappers is how many wrappers a client may have.
const wrappers = 4

// holdsRing searches a struct that wraps a client for a Ring. It does not see a client that
// is only reached through methods.
func holdsRing(v reflect.Value, depth int) bool {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return false
		}
		switch v.Type() {
		case reflect.TypeFor[*redis.Ring]():
			return true
		case reflect.TypeFor[*redis.Client](), reflect.TypeFor[*redis.ClusterClient]():
			return false
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || depth == wrappers {
		return false
	}
	for i := range v.NumField() {
		if kind := v.Field(i).Kind(); (kind == reflect.Interface || kind == reflect.Pointer ||
			kind == reflect.Struct) && holdsRing(v.Field(i), depth+1) {
			return true
		}
	}
	return false
}

// PrefixProblem returns what is wrong with the prefix of keys, or the empty string. A prefix has 1
// to 64 bytes of letters, digits, '_', '.' and '-'. Braces would move the keys' Cluster slots.
func PrefixProblem(prefix string) string {
	if prefix == "" {
		return "is empty"
	}
	if len(prefix) > maxPrefix {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		c := prefix[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' ||
			c == '.' || c == '-' {
			continue
		}
		return fmt.Sprintf("has %q at byte %d; letters, digits, '_', '.' and '-' are allowed", c, i)
	}
	return ""
}
