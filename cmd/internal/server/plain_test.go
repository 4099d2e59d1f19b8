package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A DSN that allows another machine without TLS is named. Loopback and sockets are not.
func TestPlainSQL(t *testing.T) {
	for dsn, plain := range map[string][]string{
		"postgres://u:secret@db.example/d?sslmode=disable":           {"db.example:5432"},
		"postgres://u:secret@db.example/d":                           {"db.example:5432"}, // prefer
		"postgres://u:secret@db.example/d?sslmode=allow":             {"db.example:5432"},
		"postgres://u:secret@db.example/d?sslmode=require":           nil,
		"postgres://u:secret@db.example/d?sslmode=verify-full":       nil,
		"postgres://u:secret@127.0.0.1/d?sslmode=disable":            nil,
		"postgres://u:secret@localhost/d":                            nil,
		"postgres://u@/d?host=/var/run/postgresql":                   nil,
		"mysql://u:secret@db.example/d":                              {"db.example:3306"},
		"mysql://u:secret@db.example/d?tls=false":                    {"db.example:3306"},
		"mysql://u:secret@db.example/d?tls=preferred":                {"db.example:3306"},
		"mysql://u:secret@db.example/d?tls=true":                     nil,
		"u:secret@tcp(db.example:3307)/d":                            {"db.example:3307"},
		"u:secret@tcp(127.0.0.1:3306)/d":                             nil,
		"u:secret@unix(/var/run/mysqld/mysqld.sock)/d":               nil,
		"postgres://u:secret@127.0.0.1,db.example/d?sslmode=disable": {"db.example:5432"},
	} {
		o := Options{SQL: dsn}
		require.NoError(t, o.CheckSQL(), dsn)
		addrs, says, err := o.PlainSQL()
		require.NoError(t, err)
		assert.Equal(t, plain, addrs, dsn)
		assert.NotContains(t, says, "secret")
	}
}
