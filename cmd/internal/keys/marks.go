package keys

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyspec"
	"github.com/onceward/onceward/sqladapter"
)

// findMarks finds out two settings of the programs' Config from the tables: the kind of the ids,
// and whether marks are in generations. Otherwise the user would have to pass both settings, and a
// wrong value would look like a missing key.
func findMarks(ctx context.Context, db *sql.DB, cfg sqladapter.Config) (*sqladapter.Ledger, error) {
	marks, err := sqladapter.New(cfg)
	if err != nil {
		return nil, cli.Named(err)
	}
	kind, epoch, err := marks.RecordedIDTime(ctx, db)
	switch {
	case err == nil && kind == 0:
		return marks, nil
	case err == nil:
		cfg.IDTime, cfg.SnowflakeEpoch = kind, epoch
		return sqladapter.New(cfg)
	}
	cfg.Retention = sqladapter.Generations
	cfg.Window = time.Hour // it must be set, and a lookup does not depend on it
	if inGenerations, newErr := sqladapter.New(cfg); newErr == nil && has(ctx, inGenerations, db) {
		return inGenerations, nil
	}
	return nil, fmt.Errorf("--sql: %w", err)
}

// has reports whether a Ledger's tables are there.
func has(ctx context.Context, m *sqladapter.Ledger, db *sql.DB) bool {
	var input *dedup.InputError // the key "any" carries no time
	_, _, err := m.Lookup(ctx, db, "any")
	return err == nil || errors.As(err, &input)
}

// mark reads a mark as a record.
func (s *store) mark(ctx context.Context, spec *keyspec.Spec) (dedup.Record, error) {
	m, found, err := s.marks.Lookup(ctx, s.db, spec.Key, dedup.WithScope(spec.Scope))
	var input *dedup.InputError
	if errors.As(err, &input) && input.Field == "key" {
		return dedup.Record{}, fmt.Errorf("KEY %s", input.Reason)
	}
	if err != nil || !found {
		return dedup.Record{}, err
	}
	return dedup.Record{State: driver.StateSucceeded, Age: m.Age, Fingerprint: m.Fingerprint,
		Result: m.Result}, nil
}
