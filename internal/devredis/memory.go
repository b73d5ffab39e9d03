package devredis

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Memory is an in-process store without a listener. Its keys expire as time passes.
type Memory struct {
	store *miniredis.Miniredis
	mu    sync.Mutex
	at    time.Time // the time up to which expiry was applied
}

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{store: miniredis.NewMiniRedis(), at: time.Now()} }

// Dial connects to the store.
func (m *Memory) Dial() (net.Conn, error) {
	c, err := m.store.Dial()
	if err != nil {
		return nil, err
	}
	return expiringConn{Buffered(c), m}, nil
}

// expiringConn applies expiry before each command.
type expiringConn struct {
	net.Conn
	memory *Memory
}

func (c expiringConn) Write(p []byte) (int, error) {
	c.memory.expire()
	return c.Conn.Write(p)
}

// Close ends the store and its connections.
func (m *Memory) Close() { m.store.Close() }

// expiryStep is how much earlier or later than it should a key may expire. The store looks at all its keys whenever
// expiry is applied, which is too much for every command.
const expiryStep = time.Second

// expire takes the time that has passed from the lives of all keys.
func (m *Memory) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if passed := time.Since(m.at); passed >= expiryStep {
		m.at = m.at.Add(passed)
		m.store.FastForward(passed)
	}
}

// startMemory starts the in-process store. It has no listener: clients dial it through
// pipes, so nothing else on the machine can reach it.
func startMemory(log *slog.Logger, why string) *Server {
	log.Warn("state lives in memory only and is lost when picket stops: "+why,
		"remedy", "apt-get install redis-server (7.0 or newer), then start picket again")
	s := &Server{log: log, done: make(chan struct{}), memory: NewMemory()}
	s.stopMemory = sync.OnceFunc(func() {
		s.memory.Close()
		close(s.done)
	})
	return s
}
