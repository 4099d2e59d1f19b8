package script

// Args are what the script gets as ARGV.
func (c Call) Args() []any { return c.args }
