package sqladapter

import (
	"context"
	"database/sql"
	"fmt"
)

// DeleteExpired deletes at most limit marks of this namespace that are older than
// Config.Window, oldest first, and returns how many. Call it again while it returns
// limit; a limit of 1000 keeps each statement within a few milliseconds. Several
// processes may call it at once. A duplicate of a deleted mark runs again.
//
// Age is counted back from the newest mark of the namespace, not from the present: when
// the consumers were down for longer than the window, the marks they will need for the
// redeliveries are still there. A namespace that gets no more marks keeps its last
// window for ever.
//
// It is an error when Config.Window is zero. One round trip.
func (m *Marks) DeleteExpired(ctx context.Context, db *sql.DB, limit int) (int64, error) {
	switch {
	case m.ready() != nil:
		return 0, m.ready()
	case db == nil:
		return 0, inputError("db", "is nil")
	case limit < 1:
		return 0, inputError("limit", fmt.Sprintf("must be at least 1, is %d", limit))
	case m.window == 0:
		return 0, inputError("Window", "is zero, which keeps marks for ever")
	}
	res, err := db.ExecContext(ctx, m.dialect.expire, m.namespace, m.dialect.ticks(m.window), int64(limit))
	if err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	deleted, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	return deleted, nil
}
