package harness

import "fmt"

// Goal is what a row has to reach. The zero Goal asks for nothing.
type Goal struct {
	limit   float64
	stretch float64
	atMost  bool
	value   bool // of the value itself, not of the ratio
	unit    string
}

// AtLeast wants a ratio of limit or more; stretch, if not zero, is written next to it and not
// asked for.
func AtLeast(limit, stretch float64) Goal { return Goal{limit: limit, stretch: stretch, unit: "x"} }

// AtMost wants a ratio of limit or less.
func AtMost(limit, stretch float64) Goal {
	return Goal{limit: limit, stretch: stretch, unit: "x", atMost: true}
}

// ValueAtMost wants a value of limit or less, in unit.
func ValueAtMost(limit, stretch float64, unit string) Goal {
	return Goal{limit: limit, stretch: stretch, unit: " " + unit, atMost: true, value: true}
}

// ValueAtLeast wants a value of limit or more, in unit.
func ValueAtLeast(limit float64, unit string) Goal {
	return Goal{limit: limit, unit: " " + unit, value: true}
}

// When returns the goal if it holds here.
func When(holds bool, g Goal) Goal {
	if !holds {
		return Goal{}
	}
	return g
}

// String is the goal's text in a results file, empty for the zero Goal.
func (g Goal) String() string {
	if g == (Goal{}) {
		return ""
	}
	sign := ">="
	if g.atMost {
		sign = "<="
	}
	text := fmt.Sprintf("%s %g%s", sign, g.limit, g.unit)
	if g.stretch != 0 {
		text += fmt.Sprintf(" (stretch %g%s)", g.stretch, g.unit)
	}
	return text
}

// Reached says whether a row with this value and ratio is what the goal asks for.
func (g Goal) Reached(value, ratio float64) bool {
	got := ratio
	if g.value {
		got = value
	}
	switch {
	case g == (Goal{}):
		return true
	case g.atMost:
		return got <= g.limit
	default:
		return got >= g.limit
	}
}
