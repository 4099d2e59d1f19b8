// Package others runs other solutions against duplicates through the same faults as this library,
// and counts lost, doubled and stuck messages. They are recipes, locks and middlewares, each used
// as its own documentation says. The package is a module of its own, so that their dependencies are
// in none of our go.mod files.
//
// Workers are processes that are really killed and stopped, servers are real, and only the records
// of the processes are judged. `make torture-others` runs everything, and writes
// bench/results/torture-others.json and the table of docs/evidence/others.md, which also says what
// each solution promises.
package others
