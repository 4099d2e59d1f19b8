// Command prose checks the English of the repository: its Markdown, the comments of its Go files,
// and the texts in its code that a user reads, such as errors, log messages and help texts. It
// copies the prose out of each file, leaves the code behind, and runs vale over the copy with the
// rules of styles/Onceward. It prints each finding as
//
//	file:line: rule: message
//
// It fails when there is a finding. Arguments name files or directories: then the command checks
// only what is in them.
//
//	scripts/prose.sh
//	scripts/prose.sh dedup
package main
