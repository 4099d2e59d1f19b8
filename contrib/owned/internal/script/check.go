package script

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// ring is the text of the problem with a client that has a Ring.
const ring = "a Ring, which moves keys to other servers when one is down and so forgets claims"

// ClientProblem returns what is wrong with a client, or "". The caller's error puts "client" in
// front.
func ClientProblem(client redis.UniversalClient) string {
	v := reflect.ValueOf(client)
	switch _, is := client.(*redis.Ring); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		return "is nil"
	case is:
		return "is " + ring
	case holdsRing(v, 0):
		return "wraps " + ring
	}
	return ""
}

// wrappers is how many wrappers a client may have around it.
const wrappers = 4

// holdsRing looks into a struct that wraps a client for a Ring. It does not see a Ring that is only
// reached through methods.
func holdsRing(v reflect.Value, depth int) bool {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		switch {
		case v.IsNil(), v.Type() == reflect.TypeFor[*redis.Client](),
			v.Type() == reflect.TypeFor[*redis.ClusterClient]():
			return false
		case v.Type() == reflect.TypeFor[*redis.Ring]():
			return true
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || depth == wrappers {
		return false
	}
	for i := range v.NumField() {
		if holdsRing(v.Field(i), depth+1) {
			return true
		}
	}
	return false
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// PrefixProblem returns what is wrong with the prefix of keys, or "". Braces would move the keys'
// Cluster slots.
func PrefixProblem(prefix string) string {
	if goodPrefix.MatchString(prefix) {
		return ""
	}
	return fmt.Sprintf("is %.80q (%d bytes): it needs 1-64 letters, digits, '_', '.' and '-'",
		prefix, len(prefix))
}

// MaxMillis bounds a duration sent to the server, about 140 years: beyond it Redis refuses an
// expiry.
const MaxMillis = 1 << 42

// Millis returns d in milliseconds, rounded up so that a positive duration stays positive, and at
// most MaxMillis.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return min(ms, MaxMillis)
}

// FromMillis returns ms as a duration, at most the largest there is.
func FromMillis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(min(ms, most), -most)) * time.Millisecond
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
