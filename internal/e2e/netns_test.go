//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// netns is a network of its own. It lives as long as its holder, a process that
// ends with this one whatever becomes of it, so none is ever left behind, nor a
// link of one.
type netns struct {
	t      *testing.T
	holder *exec.Cmd
	link   string // in the hub
	number int
}

// newNetns skips the test where this user may make none.
func newNetns(t *testing.T) *netns {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("partitions need root and the program ip: network namespaces are made")
	}
	n := &netns{t: t, holder: exec.Command("cat")} // ends when its input does
	n.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Setpgid: true}
	in, err := n.holder.StdinPipe()
	if err == nil {
		err = n.holder.Start()
	}
	if err != nil {
		t.Skipf("network namespaces cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = n.holder.Wait()
	})
	n.ip("link set lo up")
	return n
}

// do calls f on a thread that is in the namespace: sockets that it opens and
// processes that it starts belong there.
func (n *netns) do(f func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.Process.Pid))
		if err != nil {
			ended <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			ended <- err
			return
		}
		ended <- f()
	}()
	return <-ended
}

// ip runs the program of that name inside.
func (n *netns) ip(command string) {
	n.t.Helper()
	err := n.do(func() error {
		out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// hubAddress is where every namespace of a hub reaches its servers.
const hubAddress = "10.77.255.1"

// spokes makes a hub and n namespaces with a link each to it, and nothing else.
func spokes(t *testing.T, n int) (hub *netns, all []*netns) {
	t.Helper()
	hub = newNetns(t)
	hub.ip("address add " + hubAddress + "/32 dev lo")
	for i := range n {
		s := newNetns(t)
		s.link, s.number = fmt.Sprintf("spoke%d", i), i
		hub.ip(fmt.Sprintf("link add %s type veth peer name hub netns %d", s.link, s.holder.Process.Pid))
		hub.ip(fmt.Sprintf("address add 10.77.%d.1/24 dev %s", i, s.link))
		hub.ip("link set " + s.link + " up")
		s.ip(fmt.Sprintf("address add 10.77.%d.2/24 dev hub", i))
		s.ip("link set hub up")
		s.ip(fmt.Sprintf("route add %s via 10.77.%d.1", hubAddress, i))
		all = append(all, s)
	}
	return hub, all
}

// cut breaks the link of a spoke: both ways, or one way without a word, by
// sending its packets to a station that does not exist.
func (hub *netns) cut(s *netns, how string) {
	hub.t.Helper()
	const nobody = " lladdr 02:00:00:00:00:ff nud permanent dev "
	switch how {
	case "both ways":
		hub.ip("link set " + s.link + " down")
	case "requests":
		s.ip(fmt.Sprintf("neighbour replace 10.77.%d.1", s.number) + nobody + "hub")
	case "replies":
		hub.ip(fmt.Sprintf("neighbour replace 10.77.%d.2", s.number) + nobody + s.link)
	}
}

func (hub *netns) heal(s *netns, how string) {
	hub.t.Helper()
	switch how {
	case "both ways":
		hub.ip("link set " + s.link + " up")
	case "requests":
		s.ip(fmt.Sprintf("neighbour delete 10.77.%d.1 dev hub", s.number))
	case "replies":
		hub.ip(fmt.Sprintf("neighbour delete 10.77.%d.2 dev %s", s.number, s.link))
	}
}

// relay listens in the hub and passes every connection on to a server on this
// machine's loopback, as a front of a server would.
func (hub *netns) relay(t *testing.T, to string) (url string) {
	t.Helper()
	var l net.Listener
	err := hub.do(func() (err error) {
		l, err = net.Listen("tcp", hubAddress+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go pass(from, strings.TrimPrefix(to, "http://"))
		}
	}()
	return "http://" + l.Addr().String()
}

// pass carries bytes both ways until either side is done.
func pass(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[1], pair[0])
			ended <- struct{}{}
		}()
	}
	<-ended
}
