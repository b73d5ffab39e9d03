package orchestrator

import "github.com/picket-dev/picket/orchestrator/store"

// Connection returns what sends the scripts of a store. It is for tests that
// watch scripts at work or change them.
func (s *Store) Connection() *store.Store { return s.conn }

// Records returns the namespace of an engine. It is for tests that run a single
// script.
func (e *Engine) Records() *store.Namespace { return e.records }

// SetQuotas changes what agents may keep. It is for tests, and must not run
// beside other calls.
func (s *Store) SetQuotas(q Quotas) { s.cfg.Quotas = q.withDefaults() }
