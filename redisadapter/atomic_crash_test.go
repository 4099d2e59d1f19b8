package redisadapter_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
)

const (
	crashChild = "ONCEWARD_TEST_ATOMIC_CHILD" // the prefix under which a child works
	crashShare = "ONCEWARD_TEST_ATOMIC_SHARE" // how many effects it may have
	crashKeys  = 400
	crashKills = 25
)

// TestAtomicSurvivesKills kills processes by SIGKILL at any point. All of them have the same
// messages to process. In the end each effect has happened exactly once.
func TestAtomicSurvivesKills(t *testing.T) {
	if prefix := os.Getenv(crashChild); prefix != "" {
		workUntilKilled(t, prefix)
		return
	}
	prefix := servertest.Prefix(t)
	killed := 0
	for n := 0; n < crashKills && !t.Failed(); n++ {
		killed += killMidway(t, prefix)
	}
	s := newCrashTill(t, prefix, 20*time.Second)
	for n := range crashKeys {
		until(t, func() bool {
			_, err := s.deliver(n)
			assert.False(t, err != nil && !errors.Is(err, dedup.ErrInFlight), err)
			return err == nil
		})
		s.wantCount(crashKey(n), 1)
	}
	t.Logf("%d processes killed, after %d effects", crashKills, killed)
	assert.GreaterOrEqual(t, killed, 3*crashKills,
		"effects of the killed processes: the kills came too early")
	assert.NotEqual(t, crashKeys, killed,
		"effects of the killed processes: the kills came too late")
}

func crashKey(n int) string { return fmt.Sprint("key-", n) }

func newCrashTill(t *testing.T, prefix string, lease time.Duration) *till {
	t.Helper()
	client := redistest.Patient(t, servertest.Redis(t))
	return newTill(t, redistest.Backend{Client: client, Prefix: prefix}, func(c *dedup.Config) {
		c.LeaseTTL = lease
	})
}

func (s *till) deliver(n int) (driver.Outcome, error) {
	key := crashKey(n)
	return s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: key}, s.incr(key), s.counter(key))
}

// killMidway lets a child work until it has had a few effects, and kills it within the next two
// milliseconds. It returns how many effects the child has reported.
func killMidway(t *testing.T, prefix string) (effects int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAtomicSurvivesKills$")
	last := 3 + rand.IntN(10)
	child.Env = append(os.Environ(), crashChild+"="+prefix, fmt.Sprint(crashShare, "=", last+4))
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for effects < last && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "effect ") {
			effects++
		}
	}
	<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
	must(t, child.Process.Kill())
	_ = child.Wait() // always an error: it was killed
	return effects
}

// workUntilKilled is the child: several workers that take any of the messages, for at most
// crashShare effects. Its leases end soon after its death.
func workUntilKilled(t *testing.T, prefix string) {
	s := newCrashTill(t, prefix, 500*time.Millisecond)
	share, err := strconv.Atoi(os.Getenv(crashShare))
	must(t, err)
	effects := make(chan struct{}, share)
	for range share {
		effects <- struct{}{}
	}
	done := make(chan struct{})
	for range 4 {
		go func() {
			for effect := range effects {
				n := rand.IntN(crashKeys)
				if got, err := s.deliver(n); err == nil && got == dedup.Acquired {
					fmt.Println("effect", n)
					continue
				}
				effects <- effect
			}
		}()
	}
	<-done // the parent's SIGKILL ends it
}

// TestAtomicRights: if MULTI were denied, the server would execute the commands behind it one by
// one. So nothing may be sent then.
func TestAtomicRights(t *testing.T) {
	server, admin, _ := private(t)
	for name, c := range map[string]struct {
		rights string
		count  int
	}{
		"none":   {"", 0},
		"no end": {"+watch +unwatch +multi", 0},
		"all":    {"+watch +unwatch +multi +exec", 1},
	} {
		rules := strings.Fields(
			"on >secret resetkeys ~* resetchannels -@all +eval +evalsha +get +set +pttl +time +info +ping " +
				"+hello +client|setname +incr +pexpire " + c.rights)
		user := strings.ReplaceAll(name, " ", "")
		must(t, admin.Do(t.Context(),
			append([]any{"ACL", "SETUSER", user}, anys(rules)...)...).Err())
		client := redistest.Client(t,
			&redis.Options{Addr: server.Addr, Username: user, Password: "secret"})
		s := newTill(t, redistest.Backend{Client: client, Prefix: "ow"}, nil)
		claim := s.claim(s.d, name)
		err := s.atomic(claim, s.incr(name))
		if c.count == 0 {
			require.Error(t, err, "%s", name)
			assert.Contains(t, err.Error(), "NOPERM", "%s: %v", name, err)
			assert.False(t, dedup.OutcomeUnknown(err), "%s: %v", name, err)
			must(t, claim.Release(t.Context()))
		} else {
			assert.NoError(t, err, "%s", name)
		}
		s.wantCount(name, c.count)
	}
}

// TestAtomicFullServer: a full server refuses the whole transaction, at once.
func TestAtomicFullServer(t *testing.T) {
	_, client, _ := private(t)
	s := newTill(t, redistest.Backend{Client: client, Prefix: "ow"}, nil)
	_, err := s.store.DoAtomic(t.Context(), s.d, dedup.Request{Key: "first"}, s.incr("first"))
	must(t, err)
	c := s.claim(s.d, "a")
	must(t, client.ConfigSet(t.Context(), "maxmemory", "100kb").Err())
	err = s.atomic(c, s.incr("a"))
	assert.ErrorIs(t, err, driver.ErrStoreFull)
	assert.False(t, dedup.OutcomeUnknown(err), "%v", err)
	s.wantCount("a", 0)
	must(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	must(t, s.atomic(c, s.incr("a")))
	s.wantCount("a", 1)
}
