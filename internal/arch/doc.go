// Package arch holds the architecture as data, and tests that fail when the code departs from it.
// They find
//
//   - a package that is not in the table, and an import that is not in it;
//   - a database driver or the testing package in shipped code;
//   - a core that depends on more than the standard library and our own internal packages;
//   - an import of a nested module;
//   - a core of more than 70 exported names, and an exported name without a comment;
//   - a name for which the field has a better word (names_rules_test.go);
//   - a test that checks by hand instead of with testify (testify_test.go);
//   - an exported API that is not the one of api.txt.
//
// To change the architecture, change the table in rules_test.go in the same commit, and
// DESIGN.md with it.
package arch
