package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
)

// right is one that is granted on a table.
type right struct{ what, table string }

// rights are those of a list such as "SELECT, INSERT".
func rights(what, table string) (all []right) {
	for one := range strings.SplitSeq(what, ", ") {
		all = append(all, right{one, table})
	}
	return all
}

func join(lists ...[]right) (all []right) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// rightsInGenerations are what a role needs that marks in them.
func rightsInGenerations(s *shop) []right {
	if s.dialect == sqladapter.MySQL {
		return join(rights("SELECT, INSERT, UPDATE", unquoted(s.turn("_open"))), rights("SELECT", unquoted(s.turn("_sealed"))),
			rights("SELECT", unquoted(s.turn("_open_results"))), rights("SELECT", unquoted(s.turn("_sealed_results"))))
	}
	return join(rights("SELECT", s.relation("_generation")), rights("SELECT, INSERT", s.open(1)), rights("SELECT", s.relation("_g0")),
		rights("SELECT", s.relation("_g1_results")), rights("SELECT", s.relation("_g0_results")))
}

func unquoted(name string) string { return strings.Trim(name, `"`) }

// TestLeastRights: each operation succeeds with exactly the rights that docs/guides/sql.md says, and is
// denied without any one of them.
func TestLeastRights(t *testing.T) {
	for _, e := range []engine{postgres("exec"), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e, func(c *sqladapter.Config) { c.Window = time.Hour })
			app := newRole(t, e, s.db)
			if e.dialect == sqladapter.MySQL { // without any right there is no connection
				app.grant(t, "SELECT", s.ledger)
			}
			fence := newTill(t, e)
			store, err := sqladapter.NewStore(app.DB, sqladapter.StoreConfig{Dialect: e.dialect, Table: s.table + "_claims"})
			require.NoError(t, err)
			owners, err := sqladapter.NewStore(s.db, sqladapter.StoreConfig{Dialect: e.dialect, Table: s.table + "_claims"})
			require.NoError(t, err)
			require.NoError(t, store.Migrations().Up(t.Context(), s.db))
			t.Cleanup(func() { assert.NoError(t, store.Migrations().To(context.WithoutCancel(t.Context()), s.db, 0)) })
			box, err := outbox.New(outbox.Config{Dialect: outboxDialects[e.dialect], Table: s.table + "_box"})
			require.NoError(t, err)
			require.NoError(t, box.Migrate(t.Context(), s.db))
			t.Cleanup(func() { assert.NoError(t, box.MigrateDown(context.WithoutCancel(t.Context()), s.db, 0)) })

			mark, results, meta := s.table, s.table+"_results", s.table+"_meta"
			fences, claims := fence.cfg.Table, s.table+"_claims"
			my := func(postgres, mysql string) string {
				if e.dialect == sqladapter.MySQL {
					return mysql
				}
				return postgres
			}
			n := 0
			key := func() string { n++; return fmt.Sprint("k", n) }
			nothing := func(context.Context, *sql.Tx) error { return nil }
			s.wantFirst(t, "duplicate", true)
			old := messages(12)
			for _, message := range old {
				_, err := s.saves(t.Context(), message, []byte("receipt"))
				require.NoError(t, err)
			}
			s.age(t, "shop", 10, old...)

			for _, op := range []struct {
				name   string
				rights []right
				do     func(ctx context.Context) error
			}{
				{"Do", join(rights(my("SELECT, INSERT", "SELECT, INSERT, UPDATE"), mark), rights("SELECT", results)), func(ctx context.Context) error {
					if _, err := s.marks.Do(ctx, app.DB, key(), nothing); err != nil {
						return err
					}
					_, err := s.marks.Do(ctx, app.DB, "duplicate", nothing)
					return err
				}},
				{"SaveResultTx", join(rights(my("SELECT, INSERT", "SELECT, INSERT, UPDATE"), mark), rights(my("SELECT, INSERT", "SELECT, INSERT, UPDATE"), results)), func(ctx context.Context) error {
					k := key()
					_, err := s.marks.Do(ctx, app.DB, k, func(ctx context.Context, tx *sql.Tx) error {
						return s.marks.SaveResultTx(ctx, tx, k, []byte("receipt"))
					})
					return err
				}},
				{"DeleteExpired", join(rights("SELECT", meta), rights(my("SELECT, UPDATE, DELETE", "SELECT, DELETE"), mark), rights(my("SELECT, DELETE", "SELECT, DELETE"), results)), func(ctx context.Context) error {
					_, err := s.marks.DeleteExpired(ctx, app.DB, 1)
					return err
				}},
				{"Fence.Do", rights("SELECT, INSERT, UPDATE", fences), func(ctx context.Context) error {
					n++
					_, err := fence.Do(ctx, app.DB, sqladapter.Position{Topic: "t", TopicID: "i"}, int64(n), int64(n+1), func(context.Context, *sql.Tx, int64) error { return nil })
					return err
				}},
				{"Store", rights("SELECT, INSERT, UPDATE", claims), func(ctx context.Context) error {
					id, token := randomID(), randomToken()
					if err := store.Claim(ctx, []dedup.ClaimRequest{{ID: id, Token: token, Lease: time.Minute, Hold: time.Hour}})[0].Err; err != nil {
						return err
					}
					return store.Finish(ctx, []dedup.Change{{ID: id, Token: token, State: dedup.StateSucceeded, Window: time.Hour}})[0].Err
				}},
				{"Store.Sweep", rights(my("SELECT, UPDATE, DELETE", "SELECT, DELETE"), claims), func(ctx context.Context) error {
					claim := []dedup.ClaimRequest{{ID: randomID(), Token: randomToken(), Lease: time.Minute, Hold: time.Hour}}
					if err := owners.Claim(ctx, claim)[0].Err; err != nil {
						return err
					}
					s.exec(t, `UPDATE `+quotedName(e, claims)+` SET expires = 1`)
					if swept, err := store.Sweep(ctx, 1); err != nil || swept.Removed != 1 {
						return errors.Join(err, fmt.Errorf("removed %d", swept.Removed))
					}
					return nil
				}},
				{"Outbox.InsertTx", rights("INSERT", s.table+"_box"), func(ctx context.Context) error {
					tx, err := app.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback() }()
					return box.InsertTx(ctx, tx, outbox.Message{Topic: "t"})
				}},
			} {
				for _, r := range op.rights {
					app.grant(t, r.what, quotedName(e, r.table))
				}
				if err := op.do(t.Context()); err != nil {
					t.Errorf("%s with %v: %v", op.name, op.rights, err)
				}
				for _, r := range op.rights {
					app.revoke(t, r.what, quotedName(e, r.table))
					if err := op.do(t.Context()); err == nil || !strings.Contains(err.Error(), "denied") {
						t.Errorf("%s without %s on %s: %v", op.name, r.what, r.table, err)
					}
					app.grant(t, r.what, quotedName(e, r.table))
				}
				for _, r := range op.rights {
					app.revoke(t, r.what, quotedName(e, r.table))
				}
			}
		})
	}
}

func quotedName(e engine, table string) string {
	if e.dialect == sqladapter.MySQL {
		return table
	}
	return `"` + unquoted(table) + `"`
}
