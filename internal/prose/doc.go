// Command prose checks the English of the repository: its Markdown, the comments of its Go files,
// and the texts in its code that a user reads, such as errors, log messages and help texts. It
// copies the prose out of each file, leaves the code behind, and runs vale over the copy with the
// rules of styles/Onceward. It prints each finding as
//
//	file:line: rule: message
//
// The file unclean.txt lists the files that are not clean yet. Their findings are not printed. The
// check fails when
//
//   - a file that is not on the list has a finding,
//   - a file on the list has no finding anymore, so that its line has to go, or
//   - a file on the list does not exist.
//
// So the list can only become shorter, unless somebody adds a line by hand. With -update the
// command removes the lines that have to go, and follows the renames that git knows about.
//
// Arguments name files or directories. The command then prints every finding in them, including
// those of listed files, and leaves the list alone.
//
//	scripts/prose.sh             # the check
//	scripts/prose.sh dedup       # everything that is left to do in dedup
//	scripts/prose.sh -update     # shorten the list
package main
