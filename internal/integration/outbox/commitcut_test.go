package outbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/outbox"
)

// COMMIT or its answer is lost. The record, the effect and the message are there once.
func TestDoWithAmbiguousCommit(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		proxy := commitcut.Postgres
		if e.dialect == outbox.MySQL {
			proxy = commitcut.MySQL
		}
		c, through := proxy(t, s.dsn)
		db := openDB(t, e.driver, through)
		b := newBroker()
		start(t, s.relay(t, b))
		const rounds = 60
		committed := map[string]int{}
		for i := range rounds {
			how := []commitcut.How{commitcut.Undelivered, commitcut.Lost, commitcut.Late}[i%3]
			name := fmt.Sprint("k", i%5)
			committed[name]++
			c.Arm(commitcut.Cut{How: how})
			for try := 0; ; try++ {
				_, err := s.do(t.Context(), db, name, i/5)
				if err == nil {
					break
				}
				t.Logf("round %d, try %d: %v", i, try, err)
				require.Less(t, try, 20)
			}
		}
		c.WantCuts(t, rounds)
		s.wantOnce(t, b, committed)
	})
}
