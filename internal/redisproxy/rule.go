package redisproxy

import (
	"bytes"
	"crypto/sha1" // Redis names scripts by it
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Action is what a [Rule] does.
type Action uint8

const (
	// DropReply lets the server execute the command, waits for its reply, withholds it
	// and resets the connection. Later commands of the pipeline may be executed too.
	DropReply Action = iota + 1
	// TearReply delivers the first Rule.Bytes bytes of the reply and ends the stream.
	TearReply
	// DelayReply holds the reply, and those behind it, for Rule.Delay.
	DelayReply
	// DropRequest keeps the command, and those behind it, from the server. The replies
	// to earlier commands are delivered; then the connection is reset.
	DropRequest
	// CutPipeline lets the command be the last one the server gets. Its reply and those
	// before it are delivered; then the stream ends.
	CutPipeline
	// DelayRequest holds the command, and those behind it, for Rule.Delay.
	DelayRequest
)

// String returns the name as it is written in Go.
func (a Action) String() string {
	names := [...]string{"", "DropReply", "TearReply", "DelayReply", "DropRequest", "CutPipeline",
		"DelayRequest"}
	if int(a) < len(names) && a > 0 {
		return names[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// onReply reports whether the action waits for the reply instead of acting on the
// request.
func (a Action) onReply() bool { return a == DropReply || a == TearReply || a == DelayReply }

func (a Action) delays() bool { return a == DelayReply || a == DelayRequest }

// Request is one command of a client.
type Request struct {
	// Conn counts the proxy's connections, from 1.
	Conn int
	// Position is the command's position in its pipeline, from 1. A pipeline consists of the
	// commands that were sent before the client waited for a reply. A command alone has position 1.
	Position int
	// Args of the command, with its name. Do not change them.
	Args [][]byte
}

// Name returns the upper-case command name.
func (r Request) Name() string {
	if len(r.Args) == 0 {
		return ""
	}
	return strings.ToUpper(string(r.Args[0]))
}

// Script returns the SHA-1 of the script that an EVALSHA or EVAL runs, in lower-case
// hex, or the empty string.
func (r Request) Script() string {
	if len(r.Args) < 2 {
		return ""
	}
	switch r.Name() {
	case "EVALSHA", "EVALSHA_RO":
		return strings.ToLower(string(r.Args[1]))
	case "EVAL", "EVAL_RO":
		sum := sha1.Sum(r.Args[1]) // Redis names scripts by it
		return hex.EncodeToString(sum[:])
	}
	return ""
}

// Rule says which requests get which fault. All conditions that are set must hold.
type Rule struct {
	// Name under which Stats.Fired counts the rule. Default: the action and the
	// command.
	Name string
	// Command in any case, or with its subcommand: "set", "SCRIPT LOAD". Default: any.
	Command string
	// Script is the SHA-1 of a script in hex, run by EVALSHA or EVAL. Default: any.
	Script string
	// Position in the pipeline, from 1. Default: any.
	Position int
	// Match decides by anything else. It runs under the proxy's lock and must not call
	// the proxy. Default: every request.
	Match func(Request) bool

	// Action to take. Required.
	Action Action
	// Hang keeps the connection open and silent instead of ending it: a black hole. Not
	// for the delays.
	Hang bool
	// Bytes of the reply that TearReply delivers; all of them when the reply has fewer.
	Bytes int
	// Delay for DelayReply and DelayRequest.
	Delay time.Duration

	// Skip leaves the first matches alone. Default: 0.
	Skip int
	// Count is how many times the rule acts. Default: no limit.
	Count int
	// Probability of acting on a match that is neither skipped nor beyond Count, in
	// (0, 1]. Default: 1.
	Probability float64
	// Seed of the random choices. The same seed and the same matches give the same
	// choices.
	Seed uint64

	// OnFire is called when the rule has acted (at the beginning of a delay). It must
	// not close the proxy and should return soon. Default: none.
	OnFire func(Request)
}

// check finds rules that can only be a mistake.
func (r Rule) check() error {
	switch {
	case r.Action < DropReply || r.Action > DelayRequest:
		return fmt.Errorf("redisproxy: rule %q: Action %d does not exist", r.Name, r.Action)
	case r.Action.delays() != (r.Delay > 0):
		return fmt.Errorf("redisproxy: rule %q: Delay %v with %v", r.Name, r.Delay, r.Action)
	case r.Action.delays() && r.Hang:
		return fmt.Errorf("redisproxy: rule %q: Hang with %v", r.Name, r.Action)
	case r.Bytes < 0 || r.Bytes > 0 && r.Action != TearReply:
		return fmt.Errorf("redisproxy: rule %q: Bytes %d with %v", r.Name, r.Bytes, r.Action)
	case r.Skip < 0 || r.Count < 0 || r.Position < 0:
		return fmt.Errorf("redisproxy: rule %q: negative Skip, Count or Position", r.Name)
	case r.Probability < 0 || r.Probability > 1:
		return fmt.Errorf("redisproxy: rule %q: Probability %v", r.Name, r.Probability)
	}
	return nil
}

func (r *Rule) notify(req Request) {
	if r.OnFire != nil {
		r.OnFire(req)
	}
}

// liveRule is a rule with what it has done so far; guarded by the proxy's lock.
type liveRule struct {
	Rule
	command []byte
	matched int
	acted   int
	rng     *rand.Rand
}

func newLiveRule(r Rule) *liveRule {
	if r.Name == "" {
		r.Name = strings.TrimSpace(r.Action.String() + " " + strings.ToUpper(r.Command))
	}
	// chance, not secrecy
	return &liveRule{Rule: r, command: []byte(r.Command), rng: rand.New(rand.NewPCG(r.Seed, 0))}
}

// fires decides on one request and counts.
func (r *liveRule) fires(req Request) bool {
	if !r.matches(req) {
		return false
	}
	r.matched++
	if r.matched <= r.Skip || r.Count > 0 && r.acted >= r.Count {
		return false
	}
	if r.Probability > 0 && r.rng.Float64() >= r.Probability {
		return false
	}
	r.acted++
	return true
}

func (r *liveRule) matches(req Request) bool {
	return (r.Command == "" || r.isCommand(req.Args)) &&
		(r.Script == "" || strings.EqualFold(r.Script, req.Script())) &&
		(r.Position == 0 || r.Position == req.Position) &&
		(r.Match == nil || r.Match(req))
}

func (r *liveRule) isCommand(args [][]byte) bool {
	for i, word := range bytes.Fields(r.command) {
		if i >= len(args) || !bytes.EqualFold(word, args[i]) {
			return false
		}
	}
	return true
}
