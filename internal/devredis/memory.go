package devredis

import (
	"log/slog"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// memoryStore is the in-process store. It has no listener: clients dial it through
// pipes, so nothing else on the machine can reach it.
type memoryStore struct {
	redis *miniredis.Miniredis
	once  sync.Once
}

func startMemory(log *slog.Logger, why string) *Server {
	log.Warn("state lives in memory only and is lost when picket stops: "+why,
		"remedy", "apt-get install redis-server (7.0 or newer), then start picket again")
	return &Server{log: log, done: make(chan struct{}), memory: &memoryStore{redis: miniredis.NewMiniRedis()}}
}

func (m *memoryStore) dial() (net.Conn, error) {
	c, err := m.redis.Dial()
	if err != nil {
		return nil, err
	}
	return Buffered(c), nil
}

func (m *memoryStore) close(done chan struct{}) {
	m.once.Do(func() {
		m.redis.Close()
		close(done)
	})
}
