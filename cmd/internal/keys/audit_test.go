package keys

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/sqladapter"
)

// Each change writes a line to standard error that says who has made it and when. A refused change
// writes none.
func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "claims.db")
	r := onSQL(t, sqladapter.SQLite, "sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)", "sqlite:"+file)
	r.doubt("paid")
	for _, step := range []struct {
		args, was, is string
		code          int
	}{
		{"resolve paid --namespace shop --done --window 1d --yes", "uncertain", "succeeded", cli.Done},
		{"resolve paid --namespace shop --done --window 1d --yes", "", "", cli.No},
		{"forget paid --namespace shop --yes", "succeeded", "absent", cli.Done},
	} {
		code, _, errOut := r.run(nil, strings.Fields(step.args)...)
		assert.Equal(t, step.code, code, errOut)
		if step.code != cli.Done {
			assert.NotContains(t, errOut, "msg=audit")
			continue
		}
		assert.Regexp(t, `^time=\S+ level=INFO msg=audit who=\S+ change=`+
			strings.Fields(step.args)[0]+` id=[0-9a-f]{32} key="\\"paid\\" of namespace shop" `+
			`store=sqlite was=`+step.was+` is=`+step.is+`\n$`, errOut)
	}
}
