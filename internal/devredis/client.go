package devredis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// errLoading means that the server is reading its file and will answer later.
var errLoading = errors.New("the store is still loading its file")

// sendCommand sends one command and reads one reply: a simple string, a bulk string, or
// the elements of an array of bulk strings joined by line ends. Five commands at
// start and stop are not worth a client and its pool.
func sendCommand(ctx context.Context, socket string, args ...string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline := time.Now().Add(5 * time.Second)
	if t, ok := ctx.Deadline(); ok && t.Before(deadline) {
		deadline = t
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, encodeCommand(args)); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func encodeCommand(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

const maxReply = 1 << 20

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		if strings.HasPrefix(rest, "LOADING") {
			return "", errLoading
		}
		return "", errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n > maxReply || (kind != '$' && kind != '*') {
		return "", fmt.Errorf("unexpected reply %q", line)
	}
	if kind == '*' {
		return readArray(r, n)
	}
	if n < 0 {
		return "", nil
	}
	buf := make([]byte, n+2)
	_, err = io.ReadFull(r, buf)
	return string(buf[:n]), err
}

func readArray(r *bufio.Reader, n int) (string, error) {
	var parts []string
	for range n {
		p, err := readReply(r)
		if err != nil {
			return "", err
		}
		parts = append(parts, p)
	}
	return strings.Join(parts, "\n"), nil
}

// infoField finds "name:value" in an INFO reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}
