package keys

import (
	"context"
	"fmt"
	"strings"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/doctor"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Explanation is what --json writes of explain.
type Explanation struct {
	View
	// Why says what the record means, and Do says what to do about it. Page is the address where
	// the docs explain that.
	Why  []string `json:"why"`
	Do   []string `json:"do"`
	Page string   `json:"page"`
	// Broker says what offset the message's consumer group has committed.
	Broker []string `json:"broker,omitempty"`
	// Servers are the servers of the store, and Findings are what doctor finds about them.
	Servers  []Server            `json:"servers"`
	Findings []doctor.Diagnostic `json:"findings"`
	// NotKnown lists what the command could not find out.
	NotKnown []string `json:"not_known"`
}

// explain shows what inspect shows, and also what the record means and what the servers report.
func (s *store) explain(ctx context.Context, o *Options, v *View, r *dedup.Record,
	std *cli.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	e := Explanation{View: *v, NotKnown: []string{}}
	if o.Kafka.Given() {
		e.askBroker(ctx, o)
	}
	s.askServers(ctx, o, &e)
	if r.State == driver.StateAbsent {
		e.NotKnown = append(e.NotKnown, s.missing(o)...)
	}
	e.reason(r, o)
	err := o.write(std, e, func() error { return e.print(std, o.what()) })
	if err == nil && r.State == driver.StateAbsent {
		return cli.Fail(cli.No, fmt.Errorf("no record of %s was found", o.what()))
	}
	return err
}

// print writes the page for people.
func (e *Explanation) print(s *cli.Streams, name string) error {
	err := e.View.print(s, name)
	var servers, looked []string
	for _, server := range e.Servers {
		servers = append(servers, server.String())
	}
	for _, f := range e.Findings {
		servers = append(servers, f.Severity+" "+f.Code+": "+f.Detail+"; "+f.Why)
	}
	if e.State == driver.StateAbsent.String() {
		looked = places(e.Looked)
	}
	part := func(head string, lines ...string) {
		if err == nil && len(lines) > 0 {
			err = s.Lines(0, "\n"+s.Paint(cli.Bold, head)+"\n  "+strings.Join(lines, "\n  "))
		}
	}
	part("Looked at", looked...)
	part("Why", e.Why...)
	part("Broker", e.Broker...)
	part("Servers", servers...)
	part("What to do", append(e.Do, e.Page)...)
	part("Not known", e.NotKnown...)
	return err
}
