package redisproxy_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/internal/redisproxy"
)

// hits sends n commands and returns which of them the first rule hit. A delay is the
// one fault that leaves the connection alive.
func hits(t *testing.T, p *redisproxy.Proxy, n int, rule redisproxy.Rule) []string {
	t.Helper()
	var mu sync.Mutex
	var got []string
	rule.Action, rule.Delay = redisproxy.DelayRequest, time.Nanosecond
	rule.OnFire = func(r redisproxy.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(r.Args[1]))
	}
	p.SetRules(rule)
	c := dial(t, p)
	for i := range n {
		command := fmt.Sprintf("GET %d", i)
		c.send(command)
		c.want(echo(command)) // the rule acts before the reply
	}
	mu.Lock()
	defer mu.Unlock()
	return got
}

func TestRuleCounts(t *testing.T) {
	p := redisproxy.Start(t, newFakeServer(t, echo).addr)
	got := hits(t, p, 10, redisproxy.Rule{Skip: 2, Count: 3})
	assert.Equal(t, []string{"2", "3", "4"}, got, "Skip 2, Count 3 hit %v", got)
	assert.Empty(t, hits(t, p, 10, redisproxy.Rule{Command: "SET"}), "another command")
	half := redisproxy.Rule{Probability: 0.5, Seed: 7}
	first := hits(t, p, 400, half)
	assert.Equal(t, hits(t, p, 400, half), first, "the same seed chose differently")
	assert.GreaterOrEqual(t, len(first), 150, "probability 0.5 hit %d of 400", len(first))
	assert.LessOrEqual(t, len(first), 250, "probability 0.5 hit %d of 400", len(first))
	half.Seed = 8
	assert.NotEqual(t, hits(t, p, 400, half), first, "another seed chose the same")
	half.Count = 20
	few := hits(t, p, 400, half)
	assert.Len(t, few, 20, "probability with Count 20 hit %d", len(few))
}

func TestRuleMatch(t *testing.T) {
	const script = "return redis.call('GET', KEYS[1])"
	const sha = "d3c21d0c2b9ca22f82737626a27bcaf5d288f99f"
	tests := []struct {
		name    string
		rule    redisproxy.Rule
		command string
		hit     bool
	}{
		{"any", redisproxy.Rule{}, "GET k", true},
		{"any case", redisproxy.Rule{Command: "get"}, "GeT k", true},
		{"not a prefix", redisproxy.Rule{Command: "GET"}, "GETDEL k", false},
		{"subcommand", redisproxy.Rule{Command: "SCRIPT LOAD"}, "script load x", true},
		{"other subcommand", redisproxy.Rule{Command: "SCRIPT LOAD"}, "SCRIPT EXISTS x", false},
		{"no subcommand", redisproxy.Rule{Command: "SCRIPT LOAD"}, "SCRIPT", false},
		{"sha", redisproxy.Rule{Script: sha}, "EVALSHA " + sha + " 1 k", true},
		{"other sha", redisproxy.Rule{Script: sha}, "EVALSHA 0000 1 k", false},
		{"sha of another command", redisproxy.Rule{Script: sha}, "GET " + sha, false},
		{"predicate", redisproxy.Rule{Match: func(r redisproxy.Request) bool {
			return r.Conn == 1 && len(r.Args) == 2
		}}, "GET k", true},
		{"all must hold", redisproxy.Rule{Command: "GET", Position: 2}, "GET k", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := redisproxy.Start(t, newFakeServer(t, echo).addr)
			tt.rule.Action, tt.rule.Delay, tt.rule.Name = redisproxy.DelayReply,
				time.Nanosecond, "it"
			p.SetRules(tt.rule)
			c := dial(t, p)
			c.send(tt.command)
			c.want(echo(tt.command))
			assert.Equal(t, tt.hit, p.Stats().Fired["it"] == 1, "hit")
		})
	}
	eval := redisproxy.Request{Args: [][]byte{[]byte("eval"), []byte(script)}}
	got := eval.Script()
	assert.Equal(t, sha, got, "an EVAL has the SHA-1 %s", got)
}

// TestFirstRuleThatFires: a rule that does not fire leaves the request to the next one.
func TestFirstRuleThatFires(t *testing.T) {
	p := redisproxy.Start(t, newFakeServer(t, echo).addr)
	p.SetRules(
		redisproxy.Rule{Name: "one", Action: redisproxy.DelayReply, Delay: 1, Count: 1},
		redisproxy.Rule{Name: "two", Action: redisproxy.DelayReply, Delay: 1, Skip: 1},
	)
	c := dial(t, p)
	for range 3 {
		c.send("GET k")
		c.want(echo("GET k"))
	}
	f := p.Stats().Fired
	assert.Equal(t, 1, f["one"], "fired %v, the second rule skips its first match", f)
	assert.Equal(t, 1, f["two"], "fired %v, the second rule skips its first match", f)
}

func TestBadRules(t *testing.T) {
	p := redisproxy.Start(t, newFakeServer(t, echo).addr)
	for name, rule := range map[string]redisproxy.Rule{
		"no action":       {Command: "GET"},
		"unknown action":  {Action: 99},
		"no delay":        {Action: redisproxy.DelayReply},
		"negative delay":  {Action: redisproxy.DelayReply, Delay: -1},
		"delay elsewhere": {Action: redisproxy.DropReply, Delay: 1},
		"hang and delay":  {Action: redisproxy.DelayReply, Delay: 1, Hang: true},
		"bytes elsewhere": {Action: redisproxy.DropReply, Bytes: 1},
		"negative bytes":  {Action: redisproxy.TearReply, Bytes: -1},
		"negative skip":   {Action: redisproxy.DropReply, Skip: -1},
		"negative count":  {Action: redisproxy.DropReply, Count: -1},
		"chance above 1":  {Action: redisproxy.DropReply, Probability: 1.1},
		"negative chance": {Action: redisproxy.DropReply, Probability: -0.1},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				assert.NotNil(t, recover(), "it was taken")
			}()
			p.SetRules(rule)
		})
	}
	_, err := redisproxy.New("no port")
	assert.Error(t, err, "New took an upstream without a port")
}
