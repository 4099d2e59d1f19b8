package sqlmigrate

import (
	"fmt"
	"testing"
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
				if v.name != "" || v.up != nil || v.down != nil {
					t.Fatalf("%q was refused, and left %+v", file, v)
				}
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
		if len(found) != 1 || found[0] != file {
			t.Fatalf("%q was taken as %q", file, found)
		}
	})
}
