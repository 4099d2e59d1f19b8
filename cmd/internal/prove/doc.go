// Package prove tests a program in any language as a black box: does every message have its effect
// once? It sends messages to the program, some of them several times. It kills the program with
// SIGKILL at random moments, starts it again, and counts the effects.
//
// The program reports each effect by a request to $EFFECTS_URL, or a command counts the effects
// where they are, such as rows of a database. A message is lost when the program has acknowledged
// it and it has no effect. It is doubled when it has two. Each is shown with the kills that may
// have caused it.
package prove
