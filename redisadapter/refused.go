package redisadapter

import (
	"context"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/preflight"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// RefusedError is the error of [New] for servers and settings that it does not accept.
type RefusedError struct {
	// Findings because of which New refuses; at least one.
	Findings []preflight.Finding
}

// Error implements error.
func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "redisadapter: refused: " + strings.Join(lines, "\n")
}

// New refuses a server because of a finding with one of these codes: always, or with
// Options.Strict. The rule for an eviction policy without Options.Strict is in refuses.
var (
	alwaysRefused = map[string]bool{
		wire.CodeVersion: true, wire.CodeRole: true, wire.CodeReplicaReads: true,
	}
	strictlyRefused = map[string]bool{
		wire.CodeLoading: true, wire.CodeEvictionPolicy: true, wire.CodeEvicted: true,
		wire.CodeNoPersistence: true,
		wire.CodeRestartWipes:  true, wire.CodeAppendFailed: true, wire.CodePlaintext: true,
	}
)

// refuse returns an error for the findings that New does not accept, and hands on the others.
// counted reports whether all servers say how many keys they have evicted.
func refuse(findings []preflight.Finding, opts Options, client redis.UniversalClient,
	counted bool) error {
	_, cluster := client.(*redis.ClusterClient)
	var refused []preflight.Finding
	for _, f := range findings {
		if refuses(f.Code, opts, cluster, counted) {
			refused = append(refused, f)
		} else {
			opts.OnFinding(f)
		}
	}
	if len(refused) > 0 {
		return &RefusedError{refused}
	}
	return nil
}

// refuses reports whether New does not accept a finding. In the first seconds after a failover of
// a Cluster the client's list of masters is out of date: if a replica is on it, that is not the
// caller's mistake. A server that evicts is accepted with Options.AllowEviction, and behind a guard
// that closes when the server evicts.
func refuses(code string, opts Options, cluster, counted bool) bool {
	switch {
	case code == wire.CodeEvictionPolicy && opts.AllowEviction:
		return false
	case code == wire.CodeEvictionPolicy && !opts.Strict:
		return opts.Amnesia != FailClosed || !counted
	case code == wire.CodeRole && cluster:
		return opts.Strict
	}
	return alwaysRefused[code] || opts.Strict && strictlyRefused[code]
}

// logFinding is the default of Options.OnFinding.
func logFinding(f preflight.Finding) {
	level := slog.LevelWarn
	if f.Severity == preflight.Note {
		level = slog.LevelDebug
	}
	slog.LogAttrs(context.Background(), level, "redisadapter: "+f.Detail,
		slog.String("code", f.Code), slog.String("severity", f.Severity.String()),
		slog.String("server", f.Server), slog.String("why", f.Why), slog.String("fix", f.Fix))
}
