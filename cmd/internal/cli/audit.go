package cli

import (
	"io"
	"log/slog"
	"os"
	"os/user"
)

// Audit logs to errOut who has changed what, and when, as a line of log/slog with the message
// "audit". The pairs in args name what was changed, with its values before and after the change.
func Audit(errOut io.Writer, change string, args ...any) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	log := slog.New(slog.NewTextHandler(errOut, nil))
	log.With("who", Operator()+"@"+host, "change", change).Info("audit", args...)
}

// Operator is the user who runs the command. If sudo says who asked for it, Operator names that
// user too.
func Operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if by := os.Getenv("SUDO_USER"); by != "" && by != name {
		name = by + "(as " + name + ")"
	}
	return name
}
