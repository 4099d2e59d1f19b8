package redisscript

// Plain reports whether the runner leaves the shebang line out.
func (r *Runner) Plain() bool { return r.plain.Load() }
