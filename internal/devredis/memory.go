package devredis

import (
	"log/slog"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// startMemory starts the in-process store. It has no listener: clients dial it through
// pipes, so nothing else on the machine can reach it.
func startMemory(log *slog.Logger, why string) *Server {
	log.Warn("state lives in memory only and is lost when picket stops: "+why,
		"remedy", "apt-get install redis-server (7.0 or newer), then start picket again")
	s := &Server{log: log, done: make(chan struct{}), memory: miniredis.NewMiniRedis()}
	s.stopMemory = sync.OnceFunc(func() {
		s.memory.Close()
		close(s.done)
	})
	return s
}
