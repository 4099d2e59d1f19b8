package mcp_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

var errLost = errors.New("the connection is lost")

// shop has bookings, each of which is an effect of the tool.
type shop struct {
	*testing.T
	db   *sql.DB
	ends func(run int) error // what the tool returns after its booking
	runs int
}

// book is the tool: it writes in the transaction of the record.
func (s *shop) book(ctx context.Context, _ *mcp.CallToolRequest,
	in order) (*mcp.CallToolResult, any, error) {
	s.runs++
	tx, ok := sqladapter.TxFrom(ctx)
	require.True(s.T, ok)
	_, err := tx.ExecContext(ctx, `INSERT INTO booking (id) VALUES (?)`, in.Order)
	if err == nil {
		err = s.ends(s.runs)
	}
	if err != nil {
		return nil, nil, err
	}
	return result("booked " + in.Order), nil, nil
}

// open makes a server over a Runner of SQLite, and a client of it.
func (s *shop) open() *mcp.ClientSession {
	var err error
	s.db, err = sql.Open("sqlite", "file:"+filepath.Join(s.TempDir(), "shop.db")+
		"?_txlock=immediate&_pragma=busy_timeout(5000)")
	require.NoError(s.T, err)
	s.Cleanup(func() { _ = s.db.Close() })
	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "mcp",
		Window: time.Hour})
	require.NoError(s.T, err)
	require.NoError(s.T, ledger.Migrate(s.Context(), s.db))
	_, err = s.db.ExecContext(s.Context(), `CREATE TABLE booking (id text)`)
	require.NoError(s.T, err)
	run, err := ledger.Runner(s.db)
	require.NoError(s.T, err)
	once, err := mcpadapter.New(run, mcpadapter.Unscoped, mcpadapter.Config{Name: "shop"})
	require.NoError(s.T, err)
	server := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "book"}, s.book)
	server.AddReceivingMiddleware(once)
	here, there := mcp.NewInMemoryTransports()
	serving, err := server.Connect(s.Context(), there, nil)
	require.NoError(s.T, err)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).
		Connect(s.Context(), here, nil)
	require.NoError(s.T, err)
	s.Cleanup(func() { _ = client.Close(); _ = serving.Wait() })
	return client
}

// call books an order under its own id, and returns the text of the answer. The tool does not look
// at the remark.
func (s *shop) call(client *mcp.ClientSession, id, remark string) (text string, failed bool) {
	res, err := client.CallTool(s.Context(), &mcp.CallToolParams{Name: "book",
		Arguments: map[string]any{"order": id, "stop": remark},
		Meta:      mcp.Meta{mcpadapter.DefaultMetaKey: id}})
	require.NoError(s.T, err)
	require.Len(s.T, res.Content, 1)
	return res.Content[0].(*mcp.TextContent).Text, res.IsError
}

func (s *shop) bookings() (n int) {
	require.NoError(s.T, s.db.QueryRowContext(s.Context(), `SELECT count(*) FROM booking`).Scan(&n))
	return n
}

// Over a real Runner of SQL the tool needs no resolver, although nothing says that it is
// idempotent: an error undoes its booking, and the call runs again.
func TestAtomicRunnerOfSQL(t *testing.T) {
	s := &shop{T: t, ends: func(run int) error {
		if run == 1 {
			return errLost
		}
		return nil
	}}
	client := s.open()
	text, failed := s.call(client, "order-1", "first")
	assert.True(t, failed, text)
	assert.Zero(t, s.bookings(), "the booking of a call that failed")
	for range 2 {
		text, failed = s.call(client, "order-1", "other") // the failed call has left no record
		assert.False(t, failed, text)
		assert.Equal(t, "booked order-1", text)
		assert.Equal(t, 1, s.bookings())
	}
	assert.Equal(t, 2, s.runs)
}

// A permanent error is recorded, and retries get it without a run. Its booking is undone.
func TestFinalErrorOverARunnerOfSQL(t *testing.T) {
	s := &shop{T: t, ends: func(int) error { return dedup.Permanent(errLost) }}
	client := s.open()
	first, failed := s.call(client, "order-1", "")
	assert.True(t, failed)
	again, failed := s.call(client, "order-1", "")
	assert.True(t, failed)
	assert.Equal(t, first, again)
	assert.Zero(t, s.bookings())
	assert.Equal(t, 1, s.runs)
}
