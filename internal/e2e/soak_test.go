//go:build linux

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// loadTest is a server that everybody looks at while work goes on.
type loadTest struct {
	*abuseTest
	browser *http.Client // signed in
	console string       // the server under the host name of that login
	ctx     context.Context
	pages   atomic.Int64 // pages, listings and scrapes answered
	largest atomic.Int64 // bytes of the largest of them
	written atomic.Int64 // tasks submitted and cancelled
	heard   atomic.Int64 // events that readers got
	again   atomic.Int64 // requests that had to be repeated later
}

// A server with many tasks and a stream of events, whose pages, lists, metrics
// and streams are read all the time, by some who do not keep up: it holds
// nothing for long. With PICKET_SOAK there are 10,000 tasks for ten minutes, and
// the memory at the end is that of the beginning.
func TestMemoryIsBounded(t *testing.T) {
	tasks, span, every := 300, time.Second, 50*time.Millisecond
	soak := rig.Soaking()
	if soak {
		tasks, span, every = 10_000, 10*time.Minute, time.Second
	}
	w := newTestEnv(t)
	d := &loadTest{abuseTest: &abuseTest{testEnv: w, server: w.up("--log-level", "warn")}}
	d.addr = strings.TrimPrefix(w.url, "http://")
	d.fill(tasks)
	d.signIn()
	d.warmUp()
	d.before = d.usage()

	var leave context.CancelFunc
	d.ctx, leave = context.WithTimeout(context.Background(), span)
	defer leave()
	var group sync.WaitGroup
	for _, visitor := range []func(){d.write, d.visit, d.visit, d.list, d.scrape, d.neverRead, d.neverRead} {
		group.Go(visitor)
	}
	for range 20 {
		group.Go(d.read)
	}
	seen := d.watchMemory(every)
	group.Wait()
	after := d.awaitBaseline()

	early, late := highest(seen[len(seen)/5:len(seen)/5*2]), highest(seen[len(seen)/5*4:])
	t.Logf("%d tasks, %s: %d pages and lists (the largest %d KB), %d tasks beside, %d to be asked again, %d events heard; resident %d MB at first, %d MB at last, %d MB at most; goroutines %d -> %d, descriptors %d -> %d",
		tasks, span, d.pages.Load(), d.largest.Load()>>10, d.written.Load(), d.again.Load(), d.heard.Load(), early>>20,
		late>>20, d.peak()>>20,
		d.before.goroutines, after.goroutines, d.before.files, after.files)
	if d.pages.Load() == 0 || d.written.Load() == 0 || d.heard.Load() == 0 {
		t.Error("nobody looked, wrote or heard")
	}
	if peak := d.peak(); peak > maxResident {
		t.Errorf("the server took %d MB at its worst, allowed are %d", peak>>20, maxResident>>20)
	}
	if most := int64(1 << 20); d.largest.Load() > most {
		t.Errorf("an answer had %d KB, allowed are %d", d.largest.Load()>>10, most>>10)
	}
	if soak && late > early+early/4+16<<20 {
		t.Errorf("memory grows: %d MB at first, %d MB at last", early>>20, late>>20)
	}
}

// fill submits tasks that nobody takes.
func (d *loadTest) fill(n int) {
	d.t.Helper()
	var group sync.WaitGroup
	var next, wrote atomic.Int64
	filled := eventWriter{d.t, d.url + "/api/v1", d.key, "fill", &wrote, make(chan struct{})}
	for range 8 {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n) && !d.t.Failed(); i = next.Add(1) {
				task := spec(fmt.Sprint("task ", i), 60)
				task.Role, task.Labels = "nobody", map[string]string{"part": fmt.Sprint(i % 7)}
				filled.send("/tasks", task, task.Title)
			}
		})
	}
	group.Wait()
}

// signIn opens the console with a session.
func (d *loadTest) signIn() {
	d.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.browser = &http.Client{Jar: jar, Timeout: waitLimit, Transport: &http.Transport{DialContext: dialAsBrowser}}
	d.t.Cleanup(d.browser.CloseIdleConnections)
	res, err := d.browser.PostForm(d.url+"/console/login", url.Values{"key": {d.key}})
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Request.URL.Path != "/console/enter" {
		d.t.Fatalf("sign in: %d at %s", res.StatusCode, res.Request.URL.Path)
	}
	d.console = "http://" + res.Request.URL.Host
}

// dialAsBrowser leads names below localhost to this machine, as browsers do.
func dialAsBrowser(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && strings.HasSuffix(host, ".localhost") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// glance is how long somebody looks at what came before they want more.
const glance = 20 * time.Millisecond

func (d *loadTest) over() bool { return d.ctx.Err() != nil || d.t.Failed() }

// write makes the events.
func (d *loadTest) write() {
	for !d.over() {
		task := spec("in passing", 60)
		task.Role = "nobody"
		a, err := try(d.key, http.MethodPost, d.url+"/api/v1/tasks", task)
		var made picket.Task
		if err == nil && a.status == http.StatusCreated {
			decodeInto(d.t, a.body, &made)
			a, err = try(d.key, http.MethodPost, d.url+"/api/v1/tasks/"+made.TaskID+"/cancel",
				map[string]string{"reason": "read it"})
		}
		switch {
		case err == nil && a.status/100 == 2:
			d.written.Add(1)
		case err == nil && a.status == http.StatusServiceUnavailable:
			d.again.Add(1)
		default:
			d.t.Errorf("write: %v, %d %s", err, a.status, a.body)
		}
		d.rest(glance)
	}
}

// rest waits for a while, or until it is over.
func (d *loadTest) rest(long time.Duration) {
	select {
	case <-d.ctx.Done():
	case <-time.After(long):
	}
}

// visit goes through the pages of the console.
func (d *loadTest) visit() {
	pages := []string{"/console/", "/console/tasks", "/console/tasks?state=queued", "/console/tasks?state=cancelled",
		"/console/handoffs", "/console/reviews",
		"/console/agents", "/console/leases", "/console/budgets", "/console/events"}
	for i := 0; !d.over(); i++ {
		d.look(d.browser, pages[i%len(pages)])
		d.rest(glance)
	}
}

// list goes through all tasks, page by page.
func (d *loadTest) list() {
	for cursor := ""; !d.over(); {
		body := d.look(http.DefaultClient, "/api/v1/tasks?limit=200&cursor="+url.QueryEscape(cursor))
		var page picket.TaskPage
		if body != nil {
			decodeInto(d.t, body, &page)
		}
		d.rest(glance)
		cursor = ""
		if page.NextCursor != nil {
			cursor = *page.NextCursor
		}
	}
}

func (d *loadTest) scrape() {
	for !d.over() {
		d.look(http.DefaultClient, "/metrics")
		d.rest(glance)
	}
}

// look asks for something, which has to come.
func (d *loadTest) look(c *http.Client, path string) []byte {
	at := d.url
	if c == d.browser {
		at = d.console
	}
	req, err := http.NewRequestWithContext(d.ctx, http.MethodGet, at+path, nil)
	if err != nil {
		d.t.Error(err)
		return nil
	}
	if c != d.browser {
		req.Header.Set("Authorization", "Bearer "+d.key)
	}
	res, err := c.Do(req)
	if err != nil {
		if !d.over() {
			d.t.Errorf("look at %s: %v", path, err)
		}
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil // it is over
	}
	if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "" {
		d.again.Add(1) // the machine is too busy for its store
		return nil
	}
	if res.StatusCode != http.StatusOK || res.Request.URL.Path == "/console/login" {
		d.t.Errorf("look at %s: %d at %s %.300s", path, res.StatusCode, res.Request.URL, body)
	}
	d.pages.Add(1)
	for {
		most := d.largest.Load()
		if int64(len(body)) <= most || d.largest.CompareAndSwap(most, int64(len(body))) {
			return body
		}
	}
}

// read listens to the events.
func (d *loadTest) read() {
	req, err := http.NewRequestWithContext(d.ctx, http.MethodGet, d.url+"/api/v1/events", nil)
	if err != nil {
		d.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		if !d.over() {
			d.t.Errorf("read events: %v", err)
		}
		return
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			d.heard.Add(1)
		}
	}
}

// neverRead asks for all events there ever were and takes none of them, again
// whenever the server has had enough.
func (d *loadTest) neverRead() {
	for !d.over() {
		c, err := d.dial()
		if err != nil {
			d.t.Errorf("dawdle: %v", err)
			return
		}
		fmt.Fprintf(c,
			"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", d.addr, d.key)
		d.rest(20 * time.Second)
		_ = c.Close()
	}
}

// watchMemory notes how much memory the server has, until it is over.
func (d *loadTest) watchMemory(every time.Duration) (seen []int64) {
	d.t.Helper()
	for !d.over() {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.server.pid()), "status"))
		if err != nil {
			d.t.Error(err)
			break
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		seen = append(seen, int64(atoi(strings.TrimSpace(rest)))<<10)
		d.rest(every)
	}
	return seen
}

func highest(of []int64) (most int64) {
	for _, v := range of {
		most = max(most, v)
	}
	return most
}
