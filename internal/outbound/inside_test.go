package outbound_test

import (
	"net"
	"net/url"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
)

// What is inside is opened by its name, its address or its network, and nothing else is.
func TestInside(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	for entry, want := range map[string]bool{
		"":               false,
		"127.0.0.1":      true,
		at:               true,
		"127.0.0.0/8":    true,
		"127.0.0.1/32":   true,
		"127.0.0.1:1":    false,
		"10.0.0.0/8":     false,
		"localhost":      false,
		"*.example.com":  false,
		"0.0.0.0/0":      true,
		"::ffff:0:0/96":  false, // dialled addresses are compared in their short form
		"127.0.0.2":      false,
		"example.com:80": false,
	} {
		var list []string
		if entry != "" {
			list = []string{"unused.example", entry}
		}
		g, err := outbound.New(outbound.Config{Inside: list, Setting: "x.allow"})
		if err != nil {
			t.Fatal(err)
		}
		u := &url.URL{Scheme: "http", Host: at}
		err = g.CheckReachable(t.Context(), u)
		if (err == nil) != want || err != nil && picket.CodeOf(err) != picket.CodeDestination {
			t.Errorf("%q: %v", entry, err)
		}
		if g.NamedInside(u) != want {
			t.Errorf("%q names %s: %t", entry, at, !want)
		}
		c, err := g.Dial(t.Context(), "tcp", at)
		if (err == nil) != want {
			t.Errorf("%q: dial: %v", entry, err)
		}
		if err == nil {
			c.Close()
		}
		named := &url.URL{Scheme: "http", Host: net.JoinHostPort("localhost", port)}
		if g.NamedInside(named) != (entry == "localhost") {
			t.Errorf("%q names localhost: %t", entry, !(entry == "localhost"))
		}
	}
}

// Where clouds keep their credentials, only the address itself opens the way. What is public needs no entry.
func TestInsideKeepsSpecialAddressesClosed(t *testing.T) {
	for entry, want := range map[string]bool{
		"169.254.0.0/16":     false,
		"0.0.0.0/0":          false,
		"169.254.169.254":    true,
		"169.254.169.254/32": true,
		"169.254.169.254:80": true,
	} {
		g, err := outbound.New(outbound.Config{Inside: []string{entry}, Setting: "x.allow"})
		if err != nil {
			t.Fatal(err)
		}
		err = g.CheckReachable(t.Context(), &url.URL{Scheme: "http", Host: "169.254.169.254"})
		if (err == nil) != want {
			t.Errorf("%q: %v", entry, err)
		}
		if err := g.CheckReachable(t.Context(), &url.URL{Scheme: "https", Host: "93.184.216.34"}); err != nil {
			t.Errorf("%q: a public address: %v", entry, err)
		}
	}
	for _, entry := range []string{"", "*", "a b", "10.0.0.0/33", "http://x", "*:80"} {
		_, err := outbound.New(outbound.Config{Inside: []string{entry}})
		if picket.CodeOf(err) != picket.CodeValidation {
			t.Errorf("%q is taken: %v", entry, err)
		}
	}
}
