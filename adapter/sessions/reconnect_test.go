package sessions

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// A server that was away may have been started again, and then counts no report from before. The sessions are reported
// as soon as it answers, and not only after the next interval.
func TestSessionsAreReportedAgainAfterAnOutage(t *testing.T) {
	virtual(t, sayHello, func(t *testing.T, s *scriptedServer, cfg Config) {
		cfg.Interval = time.Hour
		start(t, cfg)
		s.ids(0)
		synctest.Wait()
		before := s.reported()
		s.mu.Lock()
		s.away = errors.Join(picket.ErrUnknown, errors.New("connection refused"))
		s.change()
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.reported(); n != before {
			t.Errorf("%d reports while the server is away", n-before)
		}
		s.mu.Lock()
		s.away = nil
		polls := len(s.polls)
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.reported(); n != before+1 {
			t.Errorf("%d reports after the outage, want 1", n-before)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if first := s.polls[polls]; first != 0 {
			t.Errorf("the first request after the outage waits %s", first)
		}
	})
}
