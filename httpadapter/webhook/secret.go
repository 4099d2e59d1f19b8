package webhook

import "fmt"

// secretSetting is the parameter or the field that has the secrets of a provider. Its errors say
// what to set and what a right secret looks like. They never have the text of a secret.
type secretSetting struct {
	field string // as it is spelled in the call
	noun  string // what one of them is called
	right string // what a right one is
}

func (s secretSetting) none() error {
	return bad(s.field, "has no %s, so anybody could forge deliveries; expected %s", s.noun, s.right)
}

func (s secretSetting) empty(i, n int) error {
	return bad(s.field, "has an empty %s%s; expected %s", s.noun, position(i, n), s.right)
}

// malformed is the error of secret i of n. problem continues the sentence that begins with the
// secret.
func (s secretSetting) malformed(i, n int, problem string, args ...any) error {
	return bad(s.field, "has a %s%s that %s; expected %s", s.noun, position(i, n),
		fmt.Sprintf(problem, args...), s.right)
}

// position says which of n secrets it is, if there are several.
func position(i, n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (number %d of %d)", i+1, n)
}
