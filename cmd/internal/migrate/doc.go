// Package migrate is the command that brings the tables of this library to a version: it shows what
// there is and what is missing, and with --apply does it; or it writes the SQL for another tool.
package migrate
