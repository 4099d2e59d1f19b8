package guarantees_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// The points at which a process that runs the effect of one key is killed.
const (
	beforeEffect = "before the effect"
	afterEffect  = "after the effect"
	afterCommit  = "after COMMIT"
)

var points = []string{beforeEffect, afterEffect, afterCommit}

const killedChild = "ONCEWARD_TEST_GUARANTEES_CHILD"

// job is what the process is to do, until it is killed at Point.
type job struct {
	engine

	Table, Key, Point string
}

// TestKilledChild is that process. It does nothing by itself.
func TestKilledChild(t *testing.T) {
	task := os.Getenv(killedChild)
	if task == "" {
		return
	}
	var j job
	require.NoError(t, json.Unmarshal([]byte(task), &j))
	at := func(point string) {
		if point == j.Point {
			fmt.Println("there")
			<-context.Background().Done() // the parent's SIGKILL ends it
		}
	}
	s := newShop(t, j.open(t), j.Dialect, j.Table)
	_, err := s.marks.Do(t.Context(), s.db, j.Key, func(ctx context.Context, tx *sql.Tx) error {
		at(beforeEffect)
		err := s.effect(ctx, tx, j.Key)
		at(afterEffect)
		return err
	})
	require.NoError(t, err)
	at(afterCommit)
	t.Errorf("%q is no point", j.Point)
}

// killThere runs the job in a process of its own and kills it.
func (j *job) killThere(t *testing.T) {
	t.Helper()
	task, err := json.Marshal(j)
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledChild$")
	child.Env = append(os.Environ(), killedChild+"="+string(task))
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "there"; {
		said = append(said, lines.Text())
	}
	require.NoError(t, child.Process.Kill())
	err = child.Wait()
	require.False(t, child.ProcessState.Exited(), "the process has not come there: %v\n%s", err,
		strings.Join(said, "\n"))
}
