// Package migrate is the command that brings the tables of this library to a version. It shows what
// there is and what is missing, and makes the changes with --apply. Or it writes the SQL for
// another tool.
package migrate
