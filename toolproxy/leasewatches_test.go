package toolproxy_test

import (
	"context"
	"maps"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

func TestANewerWatchDisplacesTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeBackend{
			watch: func(ctx context.Context, wait time.Duration) (picket.Watch, bool, error) {
				select {
				case <-ctx.Done():
					return picket.Watch{}, false, picket.Refuse(picket.CodeUnavailable, "", "cut short").
						WithCause(ctx.Err())
				case <-time.After(wait):
					return picket.Watch{}, false, nil
				}
			},
		}
		f := newProxyEnv(t, d)
		began := time.Now()
		ended := make(chan string, 4)
		start := func(name, token string) {
			go func() {
				a := f.call(t, request{method: "GET", path: "/v1/lease/watch", bearer: token})
				ended <- name + " " + http.StatusText(a.status) + " " + time.Since(began).String()
			}()
			synctest.Wait()
		}
		start("first", f.token())
		time.Sleep(10 * time.Second)
		start("another run", f.sealer.LeaseToken("default", aTask, "run_01JZZZZZZZZZZZZZZZZZZZZZZC").Reveal())
		// A capability whose task was edited is not this run's watch.
		start("edited task", f.sealer.LeaseToken("default", "task_01JZZZZZZZZZZZZZZZZZZZZZZX", aRun).Reveal())
		start("second", f.token())
		want := map[string]bool{
			"first No Content 10s":        true,
			"second No Content 1m0s":      true,
			"another run No Content 1m0s": true,
			"edited task No Content 1m0s": true,
		}
		got := map[string]bool{}
		for range 4 {
			got[<-ended] = true
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v", got)
		}
	})
}

func TestAWatchEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeBackend{watch: func(ctx context.Context, _ time.Duration) (picket.Watch, bool, error) {
			<-ctx.Done()
			return picket.Watch{}, false, ctx.Err()
		}}
		f := newProxyEnv(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			f.callWith(t, ctx, request{method: "GET", path: "/v1/lease/watch", bearer: f.token()})
			close(ended)
		}()
		synctest.Wait()
		cancel()
		<-ended
	})
}

// A server that stops does not keep its watches to their end, nor cut them off.
func TestAServerThatStopsEndsItsWatches(t *testing.T) {
	waiting := make(chan struct{})
	d := &fakeBackend{watch: func(ctx context.Context, _ time.Duration) (picket.Watch, bool, error) {
		close(waiting)
		<-ctx.Done()
		return picket.Watch{}, false, ctx.Err()
	}}
	f := newProxyEnv(t, d)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, f.e, nil) }()
	go func() { <-waiting; stop() }()

	req, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+"/v1/lease/watch?waitSeconds=50", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.token())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
