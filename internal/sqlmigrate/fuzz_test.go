package sqlmigrate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPlace: a file is taken only under the name that its version and half have, and into the
// place of that version.
func FuzzPlace(f *testing.F) {
	for _, name := range []string{
		"0001_notes.up.sql", "0002_a_b.down.sql", "0000_a.up.sql", "0003_a.up.sql", "0001_.up.sql",
		"0001_A.up.sql",
		"0001_a.up.sql\n", "1_a.up.sql", "00001_a.up.sql", "0001_a.up.sql.up.sql", "٠٠٠١_a.up.sql",
		"../0001_a.up.sql",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, file string) {
		versions := make([]version, 2)
		if place(versions, file, "SELECT 1;", names{dialect: Postgres, table: "n"}) != nil {
			for _, v := range versions {
				require.Empty(t, v.name, "%q was refused, and left %+v", file, v)
				require.Nil(t, v.up, "%q was refused, and left %+v", file, v)
				require.Nil(t, v.down, "%q was refused, and left %+v", file, v)
			}
			return
		}
		var found []string
		for i, v := range versions {
			if v.up != nil {
				found = append(found, fmt.Sprintf("%04d_%s.up.sql", i+1, v.name))
			}
			if v.down != nil {
				found = append(found, fmt.Sprintf("%04d_%s.down.sql", i+1, v.name))
			}
		}
		require.Len(t, found, 1, "%q was taken as %q", file, found)
		require.Equal(t, file, found[0], "%q was taken as %q", file, found)
	})
}
