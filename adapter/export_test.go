package adapter

// SetStepHook tells f of every step of the workspaces that a makes and commits.
func SetStepHook(a *Adapter, f func(point string)) { a.cfg.onStep = f }
