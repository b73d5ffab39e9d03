package orchestrator

// AllSources tells the source of each script as a real store gets it.
func AllSources() map[string]string {
	scripts, err := newScripts(false)
	if err != nil {
		panic(err)
	}
	out := map[string]string{}
	for name, s := range scripts {
		out[name] = s.source
	}
	return out
}
