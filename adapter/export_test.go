package adapter

import "time"

// SetStepHook tells f of every step of the workspaces that a makes and commits.
func SetStepHook(a *Adapter, f func(point string)) { a.cfg.onStep = f }

// SetPushInterval lets a push a branch that has moved after so long.
func SetPushInterval(a *Adapter, d time.Duration) { a.cfg.pushEvery = d }
