// Package prove tests a program in any language as a black box: does every message have its effect
// once? It sends messages to the program, some of them several times. It kills the program with
// SIGKILL at random moments, starts it again, and counts the effects.
//
// The program reports each effect with a request to $EFFECTS_URL. Or a command counts the effects
// where they are stored, such as rows in a database. A message is lost if the program has
// acknowledged it and it has no effect. It is doubled if it has more than one. The report names the
// kills that may have caused a loss or a double.
package prove
