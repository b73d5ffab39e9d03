//go:build linux

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

const dribblers = 500

// openMany opens n connections at once and answers the first errors.
func (s *abuseTest) openMany(n int, each func(net.Conn) error) error {
	var group sync.WaitGroup
	errs := make(chan error, 3)
	for range n {
		group.Go(func() {
			c, err := s.dial()
			if err == nil {
				s.abuseRequests.Add(1)
				err = each(c)
				c.Close()
			}
			if err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// dribble sends one piece a second for longer than any limit, and answers what
// the server said before it ended the connection.
func dribble(c net.Conn, begin, piece string) (said string, err error) {
	if _, err := io.WriteString(c, begin); err != nil {
		return "", err
	}
	heard := make(chan string, 1)
	go func() {
		_ = c.SetReadDeadline(time.Now().Add(3 * waitLimit))
		b, err := io.ReadAll(io.LimitReader(c, 64<<10))
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			b = []byte("nothing, and did not close")
		}
		heard <- string(b)
	}()
	next := time.NewTicker(time.Second)
	defer next.Stop()
	for {
		select {
		case said := <-heard:
			return said, nil
		case <-next.C:
			_, _ = io.WriteString(c, piece) // its end shows on the reading side
		}
	}
}

// dribbleHeaders never finishes a request's head: it is cut off unanswered.
func (s *abuseTest) dribbleHeaders() error {
	return s.openMany(dribblers, func(c net.Conn) error {
		said, err := dribble(c, "GET /api/v1/tasks HTTP/1.1\r\nHost: "+s.addr+"\r\n", "X-Slow: y\r\n")
		if err == nil && said != "" && !strings.HasPrefix(said, "HTTP/1.1 4") {
			err = fmt.Errorf("a head that never ends was answered %.200q", said)
		}
		return err
	})
}

// dribbleBodies never finishes a body.
func (s *abuseTest) dribbleBodies() error { return s.unfinished(dribblers, 1000) }

// dribbleFat never finishes a body that is as large as allowed: together they
// are more than the server may hold.
func (s *abuseTest) dribbleFat() error { return s.unfinished(200, 1_000_000) }

func (s *abuseTest) unfinished(n, size int) error {
	begin := "POST /api/v1/tasks HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Type: application/json\r\nX-API-Key: " +
		s.key +
		fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n{\"title\":\"", size+1000) + strings.Repeat("x", size)
	return s.openMany(n, func(c net.Conn) error {
		said, err := dribble(c, begin, "y")
		if err == nil && said != "" && !strings.HasPrefix(said, "HTTP/1.1 400 ") &&
			!strings.HasPrefix(said, "HTTP/1.1 503 ") {
			err = fmt.Errorf("a body that never ends was answered %.200q", said)
		}
		return err
	})
}

// silent connects and says nothing: it is cut off.
func (s *abuseTest) silent() error {
	return s.openMany(1000, func(c net.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(3 * waitLimit))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) ||
			isTimeout(err) {
			return fmt.Errorf("a silent connection: read %d, %v", n, err)
		}
		return nil
	})
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// idle asks one thing and leaves without a word, by reset.
func (s *abuseTest) idle() error {
	ready := sync.WaitGroup{}
	ready.Add(400)
	return s.openMany(400, func(c net.Conn) error {
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: "+s.addr+"\r\n\r\n")
		if err == nil {
			err = expectStatus(c, 200)
		}
		ready.Done()
		ready.Wait() // all are open at once
		_ = c.(*net.TCPConn).SetLinger(0)
		return err
	})
}

func expectStatus(c net.Conn, status int) error {
	_ = c.SetReadDeadline(time.Now().Add(waitLimit))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("answered %d, want %d", res.StatusCode, status)
	}
	return nil
}

// polls wait for work that there is not, and go away while they wait.
func (s *abuseTest) polls() error {
	const n = 200
	body := `{"agentId":"nobody","role":"nothing","waitSeconds":50}`
	ask := fmt.Sprintf("POST /api/v1/leases HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nX-API-Key: %s\r\nContent-Length: %d\r\n\r\n%s", s.addr, s.key, len(body), body)
	leave := make(chan struct{})
	go func() {
		defer close(leave)
		s.awaitWaiters(n)
	}()
	err := s.openMany(n, func(c net.Conn) error {
		for {
			if _, err := io.WriteString(c, ask); err != nil {
				return err
			}
			heard := make(chan struct{})
			go func() { _, _ = c.Read(make([]byte, 1)); close(heard) }()
			select {
			case <-leave:
				return nil
			case <-heard: // a server that has too much to do: once more
			}
			c.Close()
			var err error
			if c, err = s.dial(); err != nil {
				return err
			}
			defer c.Close()
		}
	})
	return err // that the server has let go of them is for calm to see
}

// awaitWaiters asks until as many wait as wanted.
func (s *abuseTest) awaitWaiters(n int64) {
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		var stats picket.Stats
		a, err := try(s.key, http.MethodGet, s.url+"/api/v1/stats", nil)
		if err == nil {
			decodeInto(s.t, a.body, &stats)
		}
		if err == nil && stats.Waiters >= n {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("%d requests for a lease wait, want %d", stats.Waiters, n)
			return
		}
	}
}

// watches of one run displace each other; the last ones are left behind.
func (s *abuseTest) watches() error {
	ask := "GET /v1/lease/watch?waitSeconds=50 HTTP/1.1\r\nHost: " + s.addr + "\r\nAuthorization: Bearer " + s.bearer +
		"\r\n\r\n"
	const n = 100
	sent := sync.WaitGroup{}
	sent.Add(n)
	var mu sync.Mutex
	displaced := 0
	done := make(chan struct{})
	err := s.openMany(n, func(c net.Conn) error {
		_, err := io.WriteString(c, ask)
		sent.Done()
		if err != nil {
			return err
		}
		heard := make(chan error, 1)
		go func() { heard <- expectStatus(c, 204) }()
		select {
		case err = <-heard:
		case <-done: // the one that watches now
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if displaced++; displaced == n-1 {
			close(done)
		}
		return err
	})
	return err
}
