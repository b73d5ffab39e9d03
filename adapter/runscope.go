package adapter

import (
	"log/slog"
	"time"

	"github.com/picket-dev/picket"
)

// runScope is what all parts of a run share: the lease, the way to report about it,
// and the log.
type runScope struct {
	cfg   *Config
	lease picket.Lease
	proxy *Proxy
	log   *slog.Logger
}

func newRunScope(cfg *Config, lease picket.Lease) *runScope {
	cfg.limitTask(&lease.Task)
	return &runScope{
		cfg:   cfg,
		lease: lease,
		proxy: NewProxy(lease, cfg.BaseURL, cfg.HTTP),
		log: cfg.Log.With("task", lease.TaskID, "run", lease.RunID, "fence", lease.FencingToken, "agent",
			cfg.AgentID),
	}
}

// window is the length of the lease from one renewal to its end.
func (s *runScope) window() time.Duration { return time.Duration(s.lease.WindowMs) * time.Millisecond }

// unconfirmedTTL is how long an unconfirmed lease may live.
func (s *runScope) unconfirmedTTL() time.Duration {
	if ttl := time.Duration(s.lease.LeaseTTLMs) * time.Millisecond; ttl > 0 {
		return ttl
	}
	return 30 * time.Second
}

// emit tells Config.OnEvent of an event of this run.
func (s *runScope) emit(e Event) {
	e.At, e.TaskID, e.RunID, e.FencingToken = time.Now(), s.lease.TaskID, s.lease.RunID, s.lease.FencingToken
	s.cfg.OnEvent(e)
}
