package sql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// playedServer answers the real driver as the documentation says a server answers the statements of
// package sqladapter. It is not a SQL Server: it shows that statements, parameters and answers pass
// through the driver as intended, not that a server would do the same.
type playedServer struct {
	t  *testing.T
	mu sync.Mutex
	// marks by id. A mark that is not committed has its transaction.
	marks map[string]*playedMark
	// effects that are committed, and those that were committed outside of any transaction.
	effects, stray int
	next           uint64
	declared       []string
	// lose drops the answer of the next COMMIT, which may have happened.
	lose string
	// errs fail the next INSERTs of marks.
	errs []int32
}

type playedMark struct {
	owner       int64
	fingerprint []byte
	result      []byte
	writer      uint64
}

type playedSession struct {
	*playedServer
	transaction      uint64
	pending          int
	aborts, implicit bool
}

func playServer(t *testing.T) (*playedServer, *sql.DB) {
	t.Helper()
	server := &playedServer{t: t, marks: map[string]*playedMark{}}
	dsn := listenTDS(t, func() tdsSession { return &playedSession{playedServer: server} })
	return server, openDB(t, "sqlserver", dsn)
}

func (s *playedSession) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rollback()
}

// rollback tells the client, too.
func (s *playedSession) rollback() []byte {
	if s.transaction == 0 {
		return nil
	}
	for id, m := range s.marks {
		if m.writer == s.transaction {
			delete(s.marks, id)
		}
	}
	env := tdsEnv(10, s.transaction)
	s.transaction, s.pending = 0, 0
	return env
}

func (s *playedSession) begin() []byte {
	s.next++
	s.transaction = s.next
	return tdsEnv(8, s.transaction)
}

func (s *playedSession) commit() []byte {
	for _, m := range s.marks {
		if m.writer == s.transaction {
			m.writer = 0
		}
	}
	env := tdsEnv(9, s.transaction)
	s.effects += s.pending
	s.transaction, s.pending = 0, 0
	return env
}

func (s *playedSession) answer(q tdsRequest) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.reset {
		s.rollback()
		s.aborts, s.implicit = false, false
	}
	assert.Equal(s.t, s.transaction, q.transaction,
		"the client takes itself to be in %d, and is in %d: %s", q.transaction, s.transaction,
		q.text)
	if q.kind == tdsManager {
		return s.manage(q.manager)
	}
	answer := s.run(q)
	if q.kind == tdsRPC {
		return append(answer, tdsDone(0xfe, 0, 0)...)
	}
	return append(answer, tdsDone(0xfd, 0, 0)...)
}

func (s *playedSession) manage(what uint16) (answer []byte) {
	switch what {
	case tdsBegin:
		answer = s.begin()
	case tdsRollback:
		answer = s.rollback()
	case tdsCommit:
		lose := s.lose
		s.lose = ""
		if lose == "before" {
			return nil
		}
		answer = s.commit()
		if lose == "after" {
			return nil
		}
	}
	return append(answer, tdsDone(0xfd, 0, 0)...)
}

func (s *playedSession) run(q tdsRequest) []byte {
	switch {
	case strings.HasPrefix(q.text, "DECLARE @was"):
		was := int64(0)
		if s.aborts {
			was = 16384
		}
		s.aborts, s.implicit = strings.Contains(q.text, "XACT_ABORT ON"),
			strings.Contains(q.text, "IMPLICIT_TRANSACTIONS ON")
		return tdsRows("iii", []any{was, int64(1), int64(s.transaction)}) // small
	case strings.HasPrefix(q.text, "SELECT CASE WHEN XACT_STATE()"):
		same := int64(0)
		if s.transaction != 0 && q.args[0] == int64(s.transaction) { // small
			same = 1
		}
		return tdsRows("i", []any{same})
	case strings.HasPrefix(q.text, "IF @@TRANCOUNT > 0 ROLLBACK"):
		s.implicit, s.aborts = false, strings.HasSuffix(q.text, "ON")
		return s.rollback()
	case strings.Contains(q.text, "INSERT INTO [onceward_marks] ("):
		s.declared = append(s.declared, q.declared)
		return s.insert(q.args)
	case strings.Contains(q.text, "INSERT INTO [onceward_marks_results] ("):
		return s.save(q.args)
	case strings.Contains(q.text, "FORCESEEK"):
		return s.load(q.args)
	}
	return s.effect(q.text)
}

// fail returns an error of a statement. The documentation of "SET XACT_ABORT" says which errors
// end the transaction, and how.
func (s *playedSession) fail(number int32, aborts bool) (answer []byte) {
	answer = tdsMessage(0xaa, number, 14, "played")
	if aborts {
		answer = append(answer, s.rollback()...)
	}
	return append(answer, tdsDone(0xff, tdsMore|tdsFailed, 0)...)
}

// insert leaves out rows that exist, and sends a message that is not an error.
func (s *playedSession) insert(args []any) (answer []byte) {
	if len(s.errs) > 0 {
		n := s.errs[0]
		s.errs = s.errs[1:]
		return s.fail(n, n == 1205)
	}
	if s.transaction == 0 {
		return s.fail(50916, false)
	}
	var fresh int64
	for i := 1; i < len(args); i += 2 {
		id, fingerprint := string(args[i].([]byte)), args[i+1] //nolint:forcetypeassert // as the dialect has it
		switch m, found := s.marks[id]; {
		case found && m.writer != 0 && m.writer != s.transaction:
			return s.fail(1222, false)
		case found:
			answer = tdsMessage(0xab, 3604, 0, "Duplicate key was ignored.")
		default:
			fresh++
			m := &playedMark{owner: args[0].(int64), writer: s.transaction} //nolint:forcetypeassert // as the dialect has it
			m.fingerprint, _ = fingerprint.([]byte)
			s.marks[id] = m
		}
	}
	return append(answer, tdsDone(0xff, tdsMore|tdsCounted, fresh)...)
}

func (s *playedSession) save(args []any) []byte {
	m, found := s.marks[string(args[0].([]byte))] //nolint:forcetypeassert // as the dialect has it
	if !found || m.result != nil {
		return tdsDone(0xff, tdsMore|tdsCounted, 0)
	}
	m.result = args[1].([]byte) //nolint:forcetypeassert // as the dialect has it
	return tdsDone(0xff, tdsMore|tdsCounted, 1)
}

func (s *playedSession) load(args []any) []byte {
	var rows [][]any
	for _, arg := range args {
		id := arg.([]byte) //nolint:forcetypeassert // as the dialect has it
		if m, found := s.marks[string(id)]; found {
			rows = append(rows, []any{id, m.owner, m.fingerprint, int64(1000),
				int64(4000), m.result})
		}
	}
	return append(tdsRows("bibiib", rows...),
		tdsDone(0xff, tdsMore|tdsCounted, int64(len(rows)))...)
}

// effect counts, or fails with the number that it names.
func (s *playedSession) effect(text string) (answer []byte) {
	var number int32
	if _, err := fmt.Sscanf(text, "FAIL %d", &number); err == nil {
		return s.fail(number, s.aborts || number == 1205)
	}
	if s.transaction == 0 && s.implicit {
		answer = s.begin()
	}
	if s.transaction == 0 {
		s.stray++
	} else {
		s.pending++
	}
	return append(answer, tdsDone(0xff, tdsMore|tdsCounted, 1)...)
}

func (s *playedServer) committed() (effects, stray int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects, s.stray
}
