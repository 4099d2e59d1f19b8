package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
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

// rightsInGenerations are the rights that marks in generations need.
func rightsInGenerations(s *shop) []right {
	if s.dialect == sqladapter.MySQL {
		return join(rights("SELECT, INSERT, UPDATE", unquoted(s.turn("_open"))),
			rights("SELECT", unquoted(s.turn("_sealed"))),
			rights("SELECT", unquoted(s.turn("_open_results"))),
			rights("SELECT", unquoted(s.turn("_sealed_results"))))
	}
	return join(rights("SELECT", s.relation("_generation")), rights("SELECT, INSERT", s.open(1)),
		rights("SELECT", s.relation("_g0")),
		rights("SELECT", s.relation("_g1_results")), rights("SELECT", s.relation("_g0_results")))
}

func unquoted(name string) string { return strings.Trim(name, `"`) }

// operation is one of the rows of docs/reference/sql.md.
type operation struct {
	name   string
	rights []right
	do     func(ctx context.Context) error
}

// try runs the operation with exactly its rights, and without each one of them.
func (op operation) try(t *testing.T, e engine, app *role) {
	t.Helper()
	for _, r := range op.rights {
		app.grant(t, r.what, quotedName(e, r.table))
	}
	assert.NoError(t, op.do(t.Context()), "%s with %v", op.name, op.rights)
	for _, r := range op.rights {
		app.revoke(t, r.what, quotedName(e, r.table))
		err := op.do(t.Context())
		// MariaDB hides a table that the role has no right to: there is no version on record then.
		require.Error(t, err, "%s without %s on %s", op.name, r.what, r.table)
		assert.True(t, slices.ContainsFunc([]string{"denied", "the role needs", "has version 0"},
			func(one string) bool { return strings.Contains(err.Error(), one) }),
			"%s without %s on %s: %v", op.name, r.what, r.table, err)
		app.grant(t, r.what, quotedName(e, r.table))
	}
	for _, r := range op.rights {
		app.revoke(t, r.what, quotedName(e, r.table))
	}
}

// TestLeastRightsInGenerations is TestLeastRights for Do in generations.
func TestLeastRightsInGenerations(t *testing.T) {
	for _, e := range []engine{inGenerations(postgres("exec")), inGenerations(mariadb())} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			app := newRole(t, e, s.db)
			if e.dialect == sqladapter.MySQL { // without any right there is no connection
				app.grant(t, "SELECT", s.ledger)
			}
			s.wantFirst(t, "duplicate", true)
			n := 0
			operation{"Do", rightsInGenerations(s), func(ctx context.Context) error {
				nothing := func(context.Context, *sql.Tx) error { return nil }
				n++
				if _, err := s.marks.Do(ctx, app.DB, fmt.Sprint("k", n), nothing); err != nil {
					return err
				}
				_, err := s.marks.Do(ctx, app.DB, "duplicate", nothing)
				return err
			}}.try(t, e, app)
		})
	}
}

// TestLeastRights: each operation succeeds with exactly the rights that docs/reference/sql.md says,
// and is denied without any one of them.
func TestLeastRights(t *testing.T) {
	for _, e := range []engine{postgres("exec"), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e, func(c *sqladapter.Config) { c.Window = time.Hour })
			app := newRole(t, e, s.db)
			if e.dialect == sqladapter.MySQL { // without any right there is no connection
				app.grant(t, "SELECT", s.ledger)
			}
			fence := newTill(t, e)
			store, err := sqlstore.New(app.DB,
				sqlstore.Options{Dialect: e.dialect, Table: s.table + "_claims"})
			require.NoError(t, err)
			owners, err := sqlstore.New(s.db,
				sqlstore.Options{Dialect: e.dialect, Table: s.table + "_claims"})
			require.NoError(t, err)
			require.NoError(t, store.Migrations().Up(t.Context(), s.db))
			t.Cleanup(func() {
				assert.NoError(t, store.Migrations().To(context.WithoutCancel(t.Context()),
					s.db, 0))
			})
			box, err := outbox.New(outbox.Config{Dialect: outboxDialects[e.dialect],
				Table: s.table + "_box"})
			require.NoError(t, err)
			require.NoError(t, box.Migrate(t.Context(), s.db))
			t.Cleanup(func() {
				assert.NoError(t, box.MigrateDown(context.WithoutCancel(t.Context()), s.db, 0))
			})

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

			check := join(rights("SELECT", "onceward_migrations"), rights("SELECT", meta),
				rights("SELECT", results), rights(my("SELECT", "SELECT, INSERT, UPDATE"), mark))
			relays := join(rights("SELECT", "onceward_migrations"),
				rights("SELECT, INSERT, UPDATE, DELETE", s.table+"_box"),
				rights("SELECT, DELETE", s.table+"_box_scheduled"),
				rights("INSERT", s.table+"_box_parked"))
			if e.dialect == sqladapter.MySQL {
				relays = append(relays, rights(toLock(t, s), s.table+"_box_shards")...)
			}
			for _, op := range []operation{
				{"Check", check, func(ctx context.Context) error {
					return s.marks.Check(ctx, app.DB)
				}},
				{"Migrate", check, func(ctx context.Context) error {
					return s.marks.Migrate(ctx, app.DB)
				}},
				{"Relay", relays, relayOnce(t, s, app, box)},
				{"Do", join(rights(my("SELECT, INSERT", "SELECT, INSERT, UPDATE"), mark),
					rights("SELECT", results),
					rights("SELECT", meta)), func(ctx context.Context) error {
					fresh := s.ledgerOf(t, func(*sqladapter.Config) {}) // asks for the form of ids
					if _, err := fresh.Do(ctx, app.DB, key(), nothing); err != nil {
						return err
					}
					if _, err := s.marks.Do(ctx, app.DB, key(), nothing); err != nil {
						return err
					}
					_, err := s.marks.Do(ctx, app.DB, "duplicate", nothing)
					return err
				}},
				{"SaveResultTx", join(rights(my("SELECT, INSERT", "SELECT, INSERT, UPDATE"), mark),
					rights(my("SELECT, INSERT", "SELECT, INSERT, UPDATE"), results)),
					func(ctx context.Context) error {
						k := key()
						_, err := s.marks.Do(ctx, app.DB, k,
							func(ctx context.Context, tx *sql.Tx) error {
								return s.marks.SaveResultTx(ctx, tx, k, []byte("receipt"))
							})
						return err
					}},
				{"DeleteExpired", join(rights("SELECT, UPDATE", meta),
					rights("SELECT, DELETE", mark), rights("SELECT, DELETE", results)),
					func(ctx context.Context) error {
						s.exec(t, `UPDATE "`+meta+`" SET walk_begun_ms = 1`) // all is due
						_, err := s.marks.DeleteExpired(ctx, app.DB, 1)
						return err
					}},
				{"Fence.Do", rights("SELECT, INSERT, UPDATE", fences),
					func(ctx context.Context) error {
						n++
						_, err := fence.Do(ctx, app.DB,
							sqladapter.Position{Topic: "t", TopicID: "i"},
							int64(n), int64(n+1), func(context.Context, *sql.Tx, int64) error {
								return nil
							})
						return err
					}},
				{"Store", rights("SELECT, INSERT, UPDATE", claims),
					func(ctx context.Context) error {
						id, token := randomID(), randomToken()
						if err := store.Claim(ctx,
							[]driver.ClaimRequest{{ID: id, Token: token, Lease: time.Minute,
								Hold: time.Hour}})[0].Err; err != nil {
							return err
						}
						return store.Finish(ctx,
							[]driver.Finish{{ID: id, Token: token, State: driver.StateSucceeded,
								Window: time.Hour}})[0].Err
					}},
				{"Store.Sweep", rights(my("SELECT, UPDATE, DELETE", "SELECT, DELETE"), claims),
					func(ctx context.Context) error {
						claim := []driver.ClaimRequest{{ID: randomID(), Token: randomToken(),
							Lease: time.Minute, Hold: time.Hour}}
						if err := owners.Claim(ctx, claim)[0].Err; err != nil {
							return err
						}
						s.exec(t, `UPDATE `+quotedName(e, claims)+` SET expires = 1`)
						if swept, err := store.Sweep(ctx, 1); err != nil || swept.Removed != 1 {
							return errors.Join(err, fmt.Errorf("removed %d", swept.Removed))
						}
						return nil
					}},
				{"Outbox.InsertTx", rights("INSERT", s.table+"_box"),
					func(ctx context.Context) error {
						tx, err := app.BeginTx(ctx, nil)
						if err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
						return box.InsertTx(ctx, tx, outbox.Message{Topic: "t"})
					}},
			} {
				op.try(t, e, app)
			}
		})
	}
}

// toLock are the rights for SELECT ... FOR UPDATE on a table. MySQL wants one to change the table.
func toLock(t *testing.T, s *shop) string {
	t.Helper()
	var version string
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT VERSION()`).Scan(&version))
	if strings.Contains(version, "MariaDB") {
		return "SELECT"
	}
	return "SELECT, UPDATE"
}

func quotedName(e engine, table string) string {
	if e.dialect == sqladapter.MySQL {
		return table
	}
	return `"` + unquoted(table) + `"`
}

// relayOnce runs a relay of the role until it has published a message, put off one that fails and
// parked one that is refused, or until it has reported a missing right.
func relayOnce(t *testing.T, s *shop, app *role,
	box *outbox.Outbox) func(ctx context.Context) error {
	t.Helper()
	n := 0
	return func(ctx context.Context) error {
		n++
		tx, err := s.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		for _, topic := range []string{"sent", "fails", "refused"} {
			key := fmt.Sprint(topic, n)
			message := outbox.Message{Topic: topic, ID: key, Key: []byte(key)}
			if topic == "refused" {
				message.NotBefore = time.Unix(1, 0) // so it is moved first
			}
			require.NoError(t, box.InsertTx(ctx, tx, message))
		}
		require.NoError(t, tx.Commit())
		parked, told := make(chan struct{}, 100), make(chan error, 1000)
		r, err := outbox.NewRelay(outbox.RelayConfig{
			Outbox: box, DB: app.DB, Publisher: byTopic{}, MaxAttempts: 1,
			RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
			OnPark: func(context.Context, outbox.Parked) {
				parked <- struct{}{}
			}, OnError: func(err error) { told <- err },
		})
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(ctx, 20*time.Second)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		defer func() { stop(); <-ended }()
		for aside, failed := false, false; !aside || !failed; {
			select {
			case <-parked:
				aside = true
			case err := <-told:
				if err := ignored(err); err != nil {
					return err
				}
				failed = failed || !errors.Is(err, outbox.ErrRejected)
			case err := <-ended:
				ended <- err
				return err
			}
		}
		stop() // an error of the last batch may follow the error of a topic
		err = <-ended
		ended <- err
		for ; len(told) > 0; err = errors.Join(err, ignored(<-told)) {
		}
		return err
	}
}

// ignored leaves out the errors that the publisher of relayOnce causes.
func ignored(err error) error {
	if topic := new(outbox.TopicError); errors.As(err, &topic) ||
		errors.Is(err, outbox.ErrRejected) {
		return nil
	}
	return err
}

// byTopic is a publisher.
type byTopic struct{}

func (byTopic) Publish(_ context.Context, messages []outbox.Message) []error {
	results := make([]error, len(messages))
	for i, m := range messages {
		switch m.Topic {
		case "fails":
			results[i] = errors.New("the topic fails")
		case "refused":
			results[i] = outbox.Reject(errors.New("too large"))
		}
	}
	return results
}
