//go:build long

package sql_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRecipesUnderFire is the run of TestUnderFire, with sqladapter and with each published recipe.
// The README has its figures.
func TestRecipesUnderFire(t *testing.T) {
	const crashes = 4
	for _, field := range battlefields() {
		for _, r := range append(ourWays, recipes...) {
			if r.deadlocks || r.onlyPostgres && field.name != "postgres" {
				continue // TestRecipes shows a recipe that only deadlocks, without crashes
			}
			t.Run(field.name+"/"+r.name, func(t *testing.T) {
				lost, doubled, burnt := field.burn(t, crashes, r.pool)
				assert.Equal(t, r.doubles, lost > 0 || doubled > 0,
					"of %d messages %d lost, %d doubled; want damage", len(burnt.messages), lost,
					doubled)
			})
		}
	}
}

// ourWays are sqladapter's, as if they were recipes.
var ourWays = []recipe{
	{name: "DoBatch and MarkBatchTx",
		deliver: func(s *shop, _ string) func(context.Context, int, []string) error {
			return s.atomic
		}},
	{name: "Do", oneByOne: true,
		deliver: func(s *shop, _ string) func(context.Context, int, []string) error {
			return func(ctx context.Context, _ int, batch []string) error {
				for _, message := range batch {
					if _, err := s.do(ctx, message); err != nil {
						return err
					}
				}
				return nil
			}
		}},
}
