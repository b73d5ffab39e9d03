//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
)

// fillLog writes a few megabytes of events, so that a reader who does not read
// is noticed whatever the sockets between hold.
func (s *abuseTest) fillLog() {
	s.t.Helper()
	reason := strings.Repeat("because ", 500)
	turn := make(chan struct{}, 8)
	var group sync.WaitGroup
	for range 1000 {
		turn <- struct{}{}
		group.Go(func() {
			defer func() { <-turn }()
			var task picket.Task
			made, err := try(s.key, http.MethodPost, s.url+"/api/v1/tasks",
				picket.TaskSpec{Title: "filler", Role: "filler"})
			if err == nil {
				decodeInto(s.t, made.body, &task)
				made, err = try(s.key, http.MethodPost, s.url+"/api/v1/tasks/"+task.TaskID+"/cancel",
					map[string]string{"reason": reason})
			}
			if err != nil || made.status != http.StatusOK {
				s.t.Errorf("fill the log: %v %d %.300s", err, made.status, made.body)
			}
		})
	}
	group.Wait()
}

// streams ask for all events and read none of them; there are more than one key
// may read. The server lets go of them although their connections stay open.
func (s *abuseTest) streams() error {
	const n = 100
	ask := "GET /api/v1/events?after=0 HTTP/1.1\r\nHost: " + s.addr + "\r\nAccept: text/event-stream\r\nX-API-Key: " +
		s.key + "\r\n\r\n"
	narrow := net.Dialer{
		Timeout: waitLimit,
		Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
			})
		},
	}
	were, err := s.streamsEnded()
	if err != nil {
		return err
	}
	for range n {
		c, err := narrow.Dial("tcp", s.addr)
		if err != nil {
			return err
		}
		defer c.Close() // after all of them were let go
		s.conns.Add(1)
		s.abuseRequests.Add(1)
		if _, err := io.WriteString(c, ask); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(4 * waitLimit); ; time.Sleep(50 * time.Millisecond) {
		are, err := s.streamsEnded()
		if err != nil || are-were >= n {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d streams that nobody reads were let go", are-were, n)
		}
	}
}

var streamMetric = regexp.MustCompile(`(?m)^picket_http_requests_total\{method="GET",route="/api/v1/events",status="(?:200|429)"\} (\d+)$`)

// streamsEnded counts the requests for events that are over.
func (s *abuseTest) streamsEnded() (int, error) {
	a, err := try("", http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, found := range streamMetric.FindAllSubmatch(a.body, -1) {
		n += atoi(string(found[1]))
	}
	return n, nil
}
