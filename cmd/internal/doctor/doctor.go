package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter/sqlpreflight"
)

// askTime bounds how long the servers may take.
const askTime = 20 * time.Second

// Diagnostic is one finding, as --json writes it.
type Diagnostic struct {
	Severity string `json:"severity"` // critical, warning or note
	Code     string `json:"code"`
	Server   string `json:"server,omitempty"` // or the file; empty: it is about the client
	Detail   string `json:"detail"`           // what was seen
	Why      string `json:"why"`              // what can follow
	Fix      string `json:"fix"`
}

// Report is what --json writes.
type Report struct {
	Findings []Diagnostic `json:"findings"`
	// Error names the question that has failed; Findings is then not complete.
	Error string `json:"error,omitempty"`
}

// run checks, and returns an error with the exit code of the worst finding.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	found, asked := o.look(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	report := Report{Findings: found}
	if asked != nil {
		report.Error = o.Server.Hide(asked.Error())
	}
	if err := report.write(s, o.JSON); err != nil {
		return err
	}
	if asked != nil {
		return asked
	}
	return worst(found)
}

// worst returns an error with the exit code of the worst finding. The findings are sorted.
func worst(found []Diagnostic) error {
	if len(found) > 0 {
		switch found[0].Severity {
		case critical:
			return cli.Fail(cli.Critical, nil)
		case warning:
			return cli.Fail(cli.No, nil)
		}
	}
	return nil
}

// look asks the servers. With an error, it returns what it had found before the error.
func (o *Options) look(ctx context.Context) (found []Diagnostic, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ask := func(wanted bool, look func(context.Context) ([]Diagnostic, error)) {
		if wanted {
			more, failed := look(ctx)
			found, err = append(found, more...), errors.Join(err, failed)
		}
	}
	ask(o.Server.Redis != "", o.lookAtRedis)
	ask(o.Server.SQL != "", o.lookAtSQL)
	ask(o.Kafka.Given(), o.lookAtKafka)
	ask(o.KafkaConfig != "", o.lookAtConfig)
	slices.SortStableFunc(found, func(a, b Diagnostic) int { return cmp.Compare(rank(a), rank(b)) })
	return found, err
}

// rank orders findings, worst first.
func rank(f Diagnostic) int { return slices.Index([]string{critical, warning, note}, f.Severity) }

func (o *Options) lookAtConfig(context.Context) ([]Diagnostic, error) {
	c, err := readClientConfig(o.KafkaConfig)
	if err != nil {
		return nil, err
	}
	return c.look(), nil
}

func (o *Options) lookAtRedis(ctx context.Context) ([]Diagnostic, error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	defer server.CutOff(ctx, client)()
	found, err := redisadapter.Preflight(ctx, client)
	all := fromPreflight(found)
	if s := o.Server.Sentinels(); s != nil {
		all = append(all, sentinels(ctx, s)...)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("--redis: %w", o.Server.Unanswered(err))
	case server.Clustered(ctx, client):
		err = server.ErrClustered
	}
	return all, err
}

// Grave returns the findings that are more than notes.
func Grave(found []preflight.Finding) []Diagnostic {
	return slices.DeleteFunc(fromPreflight(found),
		func(f Diagnostic) bool { return f.Severity == note })
}

// fromPreflight converts the findings of an adapter.
func fromPreflight(found []preflight.Finding) []Diagnostic {
	all := make([]Diagnostic, len(found))
	for i, f := range found {
		all[i] = Diagnostic{f.Severity.String(), f.Code, f.Server, f.Detail, f.Why, f.Fix}
	}
	return all
}

// sentinels asks each Sentinel whether enough of them see each other for a failover.
func sentinels(ctx context.Context, s *redis.FailoverOptions) (found []Diagnostic) {
	for _, addr := range s.SentinelAddrs {
		c := redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: s.SentinelUsername, Password: s.SentinelPassword,
			TLSConfig: s.TLSConfig, DialerRetries: 1, MaxRetries: -1,
		})
		stop := server.CutOff(ctx, c)
		err := c.CkQuorum(ctx, s.MasterName).Err()
		stop()
		_ = c.Close()
		if err != nil {
			found = append(found, Diagnostic{
				warning, "sentinel_quorum", addr,
				"SENTINEL CKQUORUM " + s.MasterName + ": " + err.Error(),
				"without a quorum and a majority no replica is promoted when the master fails, and nothing is claimed until it is back",
				"start the Sentinels that are missing: at least three, on machines of their own",
			})
		}
	}
	return found
}

// client makes a client with the settings of the program, as far as the flags name them.
func (o *Options) client() (redis.UniversalClient, error) {
	client, err := o.Server.OpenRedis()
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return client, err
	}
	opts := *cluster.Options()
	opts.ReadOnly = opts.ReadOnly || o.ReplicaReads
	opts.ClusterStateReloadInterval = cmp.Or(o.Reload, opts.ClusterStateReloadInterval)
	return redis.NewClusterClient(&opts), cluster.Close()
}

func (o *Options) lookAtSQL(ctx context.Context) ([]Diagnostic, error) {
	db, err := o.Server.OpenSQL(false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	found, err := sqlpreflight.Run(ctx, db,
		sqlpreflight.Config{Dialect: o.Server.Dialect(), Schema: o.Schema, Tables: o.Tables})
	all := fromPreflight(found)
	addrs, says, failed := o.Server.PlainSQL()
	for _, addr := range addrs {
		all = append(all, Diagnostic{
			warning, "plaintext", addr, says,
			"keys, results and the password can be read, and changed, by whoever is between",
			"sslmode=verify-full (PostgreSQL) or tls=true (MySQL, MariaDB) in the DSN",
		})
	}
	var input *dedup.InputError
	switch err = cmp.Or(err, failed); {
	case errors.As(err, &input) && input.Field == "Tables":
		err = fmt.Errorf("--table %s", input.Reason)
	case errors.As(err, &input) && input.Field == "Schema":
		err = fmt.Errorf("--schema %s", input.Reason)
	case err != nil:
		err = fmt.Errorf("--sql: %w", o.Server.Unanswered(err))
	}
	return all, err
}

// write writes for people, or as JSON.
func (r *Report) write(s *cli.Streams, asJSON bool) error {
	if asJSON {
		if r.Findings == nil {
			r.Findings = []Diagnostic{}
		}
		return cli.WriteJSON(s.Out, r)
	}
	count := make(map[string]int)
	for _, f := range r.Findings {
		count[f.Severity]++
		if err := f.write(s); err != nil {
			return err
		}
	}
	if r.Error != "" && len(r.Findings) == 0 {
		return nil // three zeros would look like a healthy server
	}
	rest := ""
	if r.Error != "" {
		rest = " so far, and NOT EVERYTHING WAS LOOKED AT"
	}
	return s.Lines(0, fmt.Sprintf("%d critical, %d warnings, %d notes%s", count[critical],
		count[warning], count[note], rest))
}

// styles are the styles of the severities.
var styles = map[string]cli.Style{critical: cli.Red, warning: cli.Yellow, note: cli.Bold}

func (f *Diagnostic) write(s *cli.Streams) error {
	pad := cli.Whole(strings.Repeat(" ", max(0, len(critical)-len(f.Severity))))
	return s.Lines(9, fmt.Sprintf("%s%s %s at %s: %s\n         why: %s\n         fix: %s",
		s.Paint(styles[f.Severity], f.Severity), pad, f.Code,
		cmp.Or(f.Server, "the client"), f.Detail, f.Why, f.Fix))
}
