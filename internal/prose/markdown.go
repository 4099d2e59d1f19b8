package main

import (
	"regexp"
	"strings"
)

var (
	// A comment that opens or closes a part of a page that a program writes, or that is a copy of
	// another page.
	opens  = regexp.MustCompile(`^<!-- (table of|included from) .*-->$`)
	closes = regexp.MustCompile(`^<!-- end( of table)? -->$`)

	fence = regexp.MustCompile("^\\s*(```|~~~)")

	// A line that begins a block of its own: a heading, an item of a list, a row of a table, a
	// quote, HTML, or the definition of a link.
	block = regexp.MustCompile(`^\s*(#|[-*+] |\d+[.)] |\||>|<|\[[^\]]+\]:)`)
	// A block that ends with its line.
	single = regexp.MustCompile(`^\s*(#|\||<|\[[^\]]+\]:|(---|===|\*\*\*)\s*$)`)
)

// paragraphs returns a page with each paragraph on one line and without the parts that programs
// write. The marks have the numbers of the lines in the page.
func paragraphs(page string) []line {
	var lines []line
	var generated, code, comment bool
	for i, text := range strings.Split(page, "\n") {
		trimmed := strings.TrimSpace(text)
		switch {
		case generated:
			generated, text = !closes.MatchString(trimmed), ""
		case fence.MatchString(text):
			code = !code
			text = ""
		case code:
			text = ""
		case opens.MatchString(trimmed):
			generated, text = true, ""
		case comment || strings.HasPrefix(trimmed, "<!--"):
			comment, text = !strings.HasSuffix(trimmed, "-->"), ""
		}
		if last := len(lines) - 1; last >= 0 && continues(lines[last].text, text) {
			lines[last].add(strings.TrimSpace(text), " ", i+1)
			continue
		}
		lines = append(lines, line{text, []mark{{1, i + 1}}})
	}
	return lines
}

// continues reports whether text belongs to the paragraph before it.
func continues(before, text string) bool {
	return strings.TrimSpace(before) != "" && strings.TrimSpace(text) != "" &&
		!block.MatchString(text) && !single.MatchString(text) && !single.MatchString(before)
}
