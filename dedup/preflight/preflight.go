// Package preflight has the findings of redisadapter.Preflight and sqlpreflight.Run: settings
// of a server, a client or a table that lose records, or take a duplicate for a new message.
//
//	findings, err := redisadapter.Preflight(ctx, client)
//	if err != nil {
//		return err // a server was not asked; findings holds what the others say
//	}
//	for _, f := range findings { // the worst is the first
//		if f.Severity == preflight.Critical {
//			return errors.New(f.String())
//		}
//		log.Print(f)
//	}
//
// docs/reference/findings.md lists the codes of all findings.
package preflight

import "fmt"

// Severity says how bad a [Finding] is. A greater one is worse.
type Severity uint8

const (
	// Note is worth knowing and loses nothing.
	Note Severity = iota
	// Warning loses records or effects, or shows them to others, when something else fails too.
	Warning
	// Critical loses claims, records or effects as the server is set now, or takes different keys
	// for the same key, or keeps the adapter from working at all.
	Critical
)

// String returns the name in lower case: note, warning or critical.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// Finding is one thing that an operator should know about a server, a table, or the settings of a
// client. Its texts are in English and contain no key of a message.
type Finding struct {
	// Code names the kind of the finding for metrics and alarms, such as eviction_policy. A code
	// does not change between versions.
	Code     string
	Severity Severity
	// Server is its address as the client knows it, or a file. It is empty for a finding about the
	// client.
	Server string
	// Detail is what the adapter saw, Why is what follows from it, and Fix is what to do about it.
	Detail, Why, Fix string
}

// String returns the finding on one line.
func (f Finding) String() string {
	where := ""
	if f.Server != "" {
		where = " at " + f.Server
	}
	return fmt.Sprintf("%s: %s%s: %s; %s; %s", f.Severity, f.Code, where, f.Detail, f.Why, f.Fix)
}
