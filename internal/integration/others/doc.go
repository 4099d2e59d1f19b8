// Package others runs what people use elsewhere against duplicates through the same faults as this
// library, and counts what was lost, doubled and stuck: recipes, locks and middlewares, each as its
// own documentation says. It is a module of its own, so that nothing of theirs is in a go.mod of
// ours.
//
// Workers are processes that are really killed and stopped, servers are real, and judged is what
// the processes had written. `make torture-others` runs everything, and writes
// bench/results/torture-others.json and the table of docs/others.md, where what each promises is
// told.
package others
