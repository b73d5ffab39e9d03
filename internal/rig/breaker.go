package rig

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// BreakMode says how a [Breaker] treats a marked request.
type BreakMode string

// Ways to treat a marked request. All of them end it before its answer.
const (
	CloseOnArrival BreakMode = "the connection closes as soon as the request arrives"
	ResetOnArrival BreakMode = "the connection is reset as soon as the request arrives"
	CloseOnAnswer  BreakMode = "the connection closes when the server has carried the request out"

	// Of HTTP/2.
	RefuseStream  BreakMode = "the stream is refused"
	ProtocolError BreakMode = "the stream ends with a protocol error"
	GoAway        BreakMode = "the server goes away before the stream"
)

// BreakModes are the ways that exist for a protocol.
func BreakModes(http2 bool) []BreakMode {
	all := []BreakMode{CloseOnArrival, ResetOnArrival, CloseOnAnswer}
	if http2 {
		all = append(all, RefuseStream, ProtocolError, GoAway)
	}
	return all
}

// Breaker stands before an HTTP server and breaks the connections of marked
// requests. It counts them on the wire, before anything else can drop them.
type Breaker struct {
	// URL is of http for HTTP/1, of https for HTTP/2.
	URL string
	// TLS trusts the breaker. Nil for HTTP/1.
	TLS *tls.Config

	how      BreakMode
	mark     []byte
	backend  string
	armed    atomic.Bool
	requests atomic.Int64
	ln       net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

// StartBreaker starts a breaker before a handler. A request is marked if what the
// client sends holds the mark. Over HTTP/2 the mark has to be in the body; with an
// empty mark every request is marked once the breaker is armed.
func StartBreaker(t testing.TB, h http.Handler, http2 bool, how BreakMode, mark string) *Breaker {
	t.Helper()
	backend := httptest.NewUnstartedServer(h)
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetHTTP1(!http2)
	backend.Config.Protocols.SetUnencryptedHTTP2(http2)
	backend.Start()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Breaker{
		URL:     "http://" + ln.Addr().String(),
		how:     how,
		mark:    []byte(mark),
		backend: backend.Listener.Addr().String(),
		ln:      ln,
	}
	if http2 {
		cert := httptest.NewTLSServer(nil)
		cert.Close()
		b.URL = "https://" + ln.Addr().String()
		b.TLS = &tls.Config{RootCAs: cert.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		b.ln = tls.NewListener(ln, &tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{"h2"}})
	}
	b.running.Go(b.accept)
	t.Cleanup(func() {
		_ = b.ln.Close()
		b.mu.Lock()
		for _, c := range b.conns {
			_ = c.Close()
		}
		b.mu.Unlock()
		b.running.Wait()
		backend.CloseClientConnections()
		backend.Close()
	})
	return b
}

// Arm makes the breaker look for marked requests. Before, it passes all on.
func (b *Breaker) Arm() { b.armed.Store(true) }

// Requests is how many marked requests came.
func (b *Breaker) Requests() int { return int(b.requests.Load()) }

func (b *Breaker) accept() {
	for {
		client, err := b.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", b.backend)
		if err != nil {
			_ = client.Close()
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, client, server)
		b.mu.Unlock()
		p := &breakerConn{b: b, client: client, server: server}
		b.running.Go(p.answers)
		b.running.Go(p.requests)
	}
}

// breakerConn is a connection of a client and its way to the server.
type breakerConn struct {
	b              *Breaker
	client         net.Conn
	server         net.Conn
	dropNextAnswer atomic.Bool // the next answer ends the connection
	write          sync.Mutex  // to the client
}

func (p *breakerConn) end() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// answers passes on what the server sends.
func (p *breakerConn) answers() {
	defer p.end()
	buf := make([]byte, 32<<10)
	for {
		n, err := p.server.Read(buf)
		if n > 0 && p.dropNextAnswer.Load() {
			return
		}
		p.write.Lock()
		_, writeErr := p.client.Write(buf[:n])
		p.write.Unlock()
		if err != nil || writeErr != nil {
			return
		}
	}
}

// requests passes on what the client sends, and breaks what is marked.
func (p *breakerConn) requests() {
	defer p.end()
	next := p.chunk
	if p.b.TLS != nil {
		preface := make([]byte, 24)
		if _, err := io.ReadFull(p.client, preface); err != nil {
			return
		}
		if _, err := p.server.Write(preface); err != nil {
			return
		}
		next = p.frame
	}
	for {
		data, stream, err := next()
		if err != nil {
			return
		}
		if p.b.armed.Load() && p.marked(data) {
			p.b.requests.Add(1)
			if !p.breakRequest(stream) {
				return
			}
			if p.b.how != CloseOnAnswer {
				continue
			}
		}
		if _, err := p.server.Write(data); err != nil {
			return
		}
	}
}

// Types of HTTP/2 frames, and codes of their errors.
const (
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	frameGoAway  = 7

	protocolError = 1
	refusedStream = 7
)

func (p *breakerConn) marked(data []byte) bool {
	if p.b.TLS != nil && len(p.b.mark) == 0 {
		return data[3] == frameHeaders
	}
	if p.b.TLS != nil && data[3] != frameData {
		return false
	}
	return bytes.Contains(data, p.b.mark)
}

// breakRequest breaks a marked request. It reports whether the connection goes on.
func (p *breakerConn) breakRequest(stream uint32) bool {
	p.write.Lock()
	defer p.write.Unlock()
	switch p.b.how {
	case CloseOnAnswer:
		p.dropNextAnswer.Store(true)
		return true
	case RefuseStream:
		return p.send(frameReset, stream, refusedStream) == nil
	case ProtocolError:
		return p.send(frameReset, stream, protocolError) == nil
	case GoAway:
		_ = p.send(frameGoAway, 0, stream-2, 0)
		return true
	case ResetOnArrival:
		if c, ok := p.client.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		} else if c, ok := p.client.(*tls.Conn); ok {
			_ = c.NetConn().(*net.TCPConn).SetLinger(0)
			_ = c.NetConn().Close()
		}
	}
	return false
}

func (p *breakerConn) send(kind byte, stream uint32, words ...uint32) error {
	frame := []byte{0, 0, byte(4 * len(words)), kind, 0}
	for _, word := range append([]uint32{stream}, words...) {
		frame = binary.BigEndian.AppendUint32(frame, word)
	}
	_, err := p.client.Write(frame)
	return err
}

// chunk is what came over HTTP/1. A request of a test fits into one.
func (p *breakerConn) chunk() ([]byte, uint32, error) {
	buf := make([]byte, 64<<10)
	n, err := p.client.Read(buf)
	if n > 0 {
		err = nil
	}
	return buf[:n], 0, err
}

// frame is one frame of HTTP/2.
func (p *breakerConn) frame() (data []byte, stream uint32, err error) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(p.client, head); err != nil {
		return nil, 0, err
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	data = append(head, make([]byte, size)...)
	_, err = io.ReadFull(p.client, data[9:])
	return data, binary.BigEndian.Uint32(head[5:9]), err
}
