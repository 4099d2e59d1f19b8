package redisadapter

import (
	"context"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// ErrAmnesia: the server has lost claims or records, or may have. A claim is Unknown
// with it while [FailClosed] stands. A key that is on record still answers Duplicate.
var ErrAmnesia = wire.ErrAmnesia

// Amnesia is what happens to claims when the server has lost data.
type Amnesia uint8

const (
	// GuardOff looks for nothing, needs no canary and costs nothing. It is the default:
	// a server that comes back empty then grants every redelivered message again.
	GuardOff Amnesia = iota
	// FailClosed grants no claim: it is Unknown with [ErrAmnesia], until
	// Options.AmnesiaFor is over or an operator calls [ClearAmnesia]. New accepts a server
	// that may evict keys only with it: see Options.AllowEviction.
	FailClosed
	// AllowAndFlag grants claims and reports each batch of them: in a finding with the code
	// flagged_claims, and in Health.Flagged.
	AllowAndFlag
	// AskSecondary asks Options.Secondary about each claim before it is granted.
	AskSecondary
)

// SecondaryStore is where [AskSecondary] looks, such as another [dedup.Store].
type SecondaryStore interface {
	// Lookup answers per ID, in order, like that of dedup.Store.
	Lookup(ctx context.Context, ids []dedup.ID) []dedup.Answer
}

// String returns the lower-case name.
func (a Amnesia) String() string { return guard.Policy(a).String() }
