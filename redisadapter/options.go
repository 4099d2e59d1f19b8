package redisadapter

import (
	"fmt"

	"github.com/onceward/onceward/internal/redisscript"
)

// DefaultPrefix begins the name of every key, unless Options.Prefix says otherwise.
const DefaultPrefix = "ow"

// Layout says what is kept of a finished key.
type Layout uint8

const (
	// Rich keeps one record per key, with results, failures, fingerprints and the
	// uncertain state. Completing runs a script. It is the default.
	Rich Layout = iota
	// SeenOnly keeps one record per key that says only that it is done, with the
	// fingerprint and origin of its message. It needs dedup.Config.SeenOnly, and completes
	// with one plain command.
	SeenOnly
)

// String returns the lower-case name.
func (l Layout) String() string {
	switch l {
	case Rich:
		return "rich"
	case SeenOnly:
		return "seen_only"
	}
	return fmt.Sprintf("layout(%d)", uint8(l))
}

// Options of a [Store]. The zero value is ready for use.
type Options struct {
	// Prefix begins the name of every key in Redis: 1-64 bytes of letters, digits, '_',
	// '.', '-'. Two deployments that share a server need two. Default DefaultPrefix.
	Prefix string

	// Layout says what is kept of a finished key. All processes that share a prefix must
	// agree on it. Default Rich.
	Layout Layout
}

// complete returns the options with their defaults, or names the first bad one.
func (o Options) complete() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if problem := redisscript.PrefixProblem(o.Prefix); problem != "" {
		return o, input("Options.Prefix", problem)
	}
	if o.Layout > SeenOnly {
		return o, input("Options.Layout", fmt.Sprintf("is %d; Rich and SeenOnly are known", o.Layout))
	}
	return o, nil
}
