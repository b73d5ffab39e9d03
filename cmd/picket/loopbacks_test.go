package main

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// A server with a console holds its port wherever browsers look for localhost,
// serves all of it as one, and lets go of all of it.
func TestListenersAreOne(t *testing.T) {
	l, err := listenOnLoopbacks("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	served := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				served <- err
				return
			}
			_, _ = io.WriteString(conn, "picket")
			conn.Close()
		}
	}()
	for _, ip := range append([]string{"localhost"}, loopbackAddresses...) {
		at := net.JoinHostPort(ip, port)
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		if said, err := io.ReadAll(conn); string(said) != "picket" {
			t.Errorf("%s says %q (%v)", at, said, err)
		}
		conn.Close()
		if ip == "localhost" {
			continue
		}
		if second, err := net.Listen("tcp", at); err == nil {
			second.Close()
			t.Errorf("another process can listen on %s", at)
		}
		if _, err := listenOnLoopbacks(at); picket.CodeOf(err) != picket.CodeStateConflict ||
			!strings.Contains(err.Error(), "is taken") {
			t.Errorf("%s a second time: %v", at, err)
		}
	}
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
	again, err := listenOnLoopbacks("127.0.0.1:" + port)
	if err != nil {
		t.Fatalf("the port is not let go: %v", err)
	}
	again.Close()

	// Anyone who holds only one of the addresses keeps the whole server from starting:
	// the other addresses are let go as well.
	taken, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no ::1")
	}
	defer taken.Close()
	_, port, _ = net.SplitHostPort(taken.Addr().String())
	if _, err := listenOnLoopbacks("127.0.0.1:" + port); picket.CodeOf(err) != picket.CodeStateConflict {
		t.Errorf("with ::1 taken: %v", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatalf("127.0.0.1 is still held: %v", err)
	}
	free.Close()
}
