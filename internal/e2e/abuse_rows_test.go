//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// abuse is what an attacker sends and what exactly it gets: the statuses in
// order, then "closed" when the server must end the connection on its own.
type abuse struct {
	name string
	send []byte
	more func(io.Writer) // goes on sending until the connection breaks
	want string
}

// malformed sends every row on connections of its own, many side by side.
func (s *abuseTest) malformed() error {
	rows := s.rows()
	var group sync.WaitGroup
	errs := make(chan error, len(rows))
	turn := make(chan struct{}, 16)
	for range times(10, 4) {
		for _, row := range rows {
			turn <- struct{}{}
			group.Go(func() {
				defer func() { <-turn }()
				got, err := s.sendAbuse(row)
				if err == nil && got != row.want {
					err = fmt.Errorf("answered %q, want %q", got, row.want)
				}
				if err != nil {
					select {
					case errs <- fmt.Errorf("%s: %w", row.name, err):
					default:
					}
				}
			})
		}
	}
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// sendAbuse sends one row and reads all answers.
func (s *abuseTest) sendAbuse(row abuse) (got string, err error) {
	c, err := s.dial()
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = c.Write(row.send)
		if row.more != nil {
			row.more(c)
		}
	})
	defer sending.Wait()
	defer c.Close()
	s.abuseRequests.Add(1)
	in := bufio.NewReader(c)
	var said []string
	for len(strings.Fields(row.want)) > len(said) {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				return strings.Join(said, " "),
					fmt.Errorf("neither answered nor closed within %s, after %q", waitLimit, said)
			}
			said = append(said, "closed")
			break
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err != nil {
			return strings.Join(said, " "), err
		}
		said = append(said, strconv.Itoa(res.StatusCode))
	}
	return strings.Join(said, " "), nil
}

// rows are the requests that no honest client sends.
func (s *abuseTest) rows() []abuse {
	const tasks = "/api/v1/tasks"
	host := "Host: " + s.addr + "\r\n"
	key, lease := "X-API-Key: "+s.key+"\r\n", "Authorization: Bearer "+s.bearer+"\r\n"
	const typed = "Content-Type: application/json\r\n"
	post := func(path, header, body string) []byte {
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\n%s%s%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", path,
			host, typed, header, len(body), body)
	}
	get := func(path, header string) []byte {
		return fmt.Appendf(nil, "GET %s HTTP/1.1\r\n%s%sConnection: close\r\n\r\n", path, host, header)
	}
	chunked := func(path, header string) []byte {
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\n%s%s%sTransfer-Encoding: chunked\r\n\r\n", path, host, typed,
			header)
	}
	head := func(rest string) []byte { return []byte(rest + "\r\n\r\n") }
	deep := `{"title":"x","input":` + strings.Repeat("[", 500_000)
	report := "/v1/tools/report_progress"
	return []abuse{
		{"a body over the limit", post(tasks, key, `{"title":"`+strings.Repeat("x", 3<<20)+`"}`), nil, "413 closed"},
		{"a body over the limit of a tool", post(report, lease, `{"summary":"`+strings.Repeat("x", 3<<20)+`"}`), nil,
			"413 closed"},
		{"a gigabyte announced",
			fmt.Appendf(nil, "POST %s HTTP/1.1\r\n%s%s%sContent-Length: 1073741824\r\n\r\n", tasks, host, typed, key),
			nil, "413 closed"},
		{"a gigabyte announced, without a key",
			fmt.Appendf(nil, "POST %s HTTP/1.1\r\n%s%sContent-Length: 1073741824\r\n\r\n", tasks, host, typed), nil,
			"401 closed"},
		{"a gigabyte that asks first",
			fmt.Appendf(nil, "POST %s HTTP/1.1\r\n%s%s%sExpect: 100-continue\r\nContent-Length: 1073741824\r\n\r\n",
				tasks, host, typed, key), nil, "413 closed"},
		{"chunks without end", chunked(tasks, key), endlessChunks, "413 closed"},
		{"chunks without end for a tool", chunked(report, lease), endlessChunks, "413 closed"},
		{"chunks without end, without a key", chunked(tasks, ""), endlessChunks, "401 closed"},
		{"a chunk of 16 EB", append(chunked(tasks, key), "ffffffffffffffff\r\n"...), endlessChunks, "413 closed"},
		{"invalid chunks", append(chunked(tasks, key), "nonsense\r\n\r\n"...), nil, "400 closed"},
		{"a gzip bomb", append(fmt.Appendf(nil,
			"POST %s HTTP/1.1\r\n%s%s%sContent-Encoding: gzip\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
			tasks, host, typed, key, len(bomb())), bomb()...), nil, "415 closed"},
		{"a gzip bomb for a tool",
			append(fmt.Appendf(nil,
				"POST %s HTTP/1.1\r\n%s%s%sContent-Encoding: gzip\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
				report, host, typed, lease, len(bomb())), bomb()...), nil, "415 closed"},
		{"deep JSON", post(tasks, key, deep), nil, "400 closed"},
		{"bad UTF-8", post(tasks, key, "{\"title\":\"\xff\xfe\"}"), nil, "400 closed"},
		{"bad UTF-8 for a tool", post(report, lease, "{\"summary\":\"\xc3\x28\"}"), nil, "400 closed"},
		{"a million empty members", post(tasks, key, "{"+strings.Repeat(`"":1,`, 100_000)+`"":1}`), nil, "400 closed"},
		{"a number of 500,000 digits", post(tasks, key, `{"title":"x","priority":`+strings.Repeat("9", 500_000)+`}`),
			nil, "400 closed"},

		{"one header of 1 MB", get("/healthz", "X-Bomb: "+strings.Repeat("x", 1<<20)+"\r\n"), nil, "431 closed"},
		{"20,000 headers", get("/healthz", manyHeaders()), nil, "431 closed"},
		{"a key of 50 KB", get(tasks, "X-API-Key: "+strings.Repeat("k", 50<<10)+"\r\n"), nil, "401 closed"},
		{"a bearer of 50 KB", get("/v1/tools", "Authorization: Bearer "+strings.Repeat("k", 50<<10)+"\r\n"), nil,
			"401 closed"},
		{"a query of 50 KB", get(tasks+"?state="+strings.Repeat("a,", 25<<10), key), nil, "400 closed"},
		{"a query of 1 MB", get(tasks+"?state="+strings.Repeat("a", 1<<20), key), nil, "431 closed"},
		{"10,000 parameters", get(tasks+"?"+strings.Repeat("a&", 10_000), key), nil, "400 closed"},
		{"a path of 50 KB", get("/"+strings.Repeat("a/", 25<<10), key), nil, "404 closed"},
		{"a path that climbs", get("/api/v1/../../../../etc/passwd", key), nil, "404 closed"},
		{"a path with NUL", get("/api/v1/tasks/%00", key), nil, "400 closed"},
		{"a path that is not an encoding", get("/api/v1/tasks/%zz", key), nil, "400 closed"},

		{"garbage", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), nil, "400 closed"},
		{"garbage behind a good request",
			[]byte("GET /healthz HTTP/1.1\r\n" + host + "\r\n\x00\x01\x02 nonsense\r\n\r\n"), nil, "200 400 closed"},
		{"hundred requests at once",
			[]byte(strings.Repeat("GET /healthz HTTP/1.1\r\n"+host+"\r\n", 100) + "bad\r\n\r\n"), nil,
			strings.Repeat("200 ", 100) + "400 closed"},
		{"HTTP/1.0", head("GET /healthz HTTP/1.0\r\nHost: " + s.addr), nil, "200 closed"},
		{"HTTP/1.0 without a host", head("GET /healthz HTTP/1.0"), nil, "403 closed"},
		{"HTTP/0.9", head("GET /healthz"), nil, "400 closed"},
		{"HTTP/7.3", head("GET /healthz HTTP/7.3\r\n" + strings.TrimSpace(host)), nil, "505 closed"},
		{"the preface of HTTP/2", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), nil, "404 closed"},
		{"our address as a proxy would ask for it",
			head("GET http://" + s.addr + "/healthz HTTP/1.1\r\n" + host + "Connection: close"), nil, "200 closed"},
		{"a foreign address as a proxy would ask for it",
			head("GET http://evil.example/healthz HTTP/1.1\r\n" + host + "Connection: close"), nil, "403 closed"},
		{"a tunnel", head("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close"), nil,
			"404 closed"},
		{"no host", head("GET /healthz HTTP/1.1\r\nConnection: close"), nil, "400 closed"},
		{"two hosts", head("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close"), nil, "400 closed"},
		{"a host that is invalid", head("GET /healthz HTTP/1.1\r\nHost: a b\r\nConnection: close"), nil, "400 closed"},
		{"a foreign host", head("GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close"), nil, "403 closed"},
		{"a method that is invalid", head("FROB /api/v1/tasks HTTP/1.1\r\n" + host + "Connection: close"), nil,
			"405 closed"},
		{"two lengths", head("POST /api/v1/tasks HTTP/1.1\r\n" + host + key + "Content-Length: 1\r\nContent-Length: 2"),
			nil, "400 closed"},
		{"a negative length", head("POST /api/v1/tasks HTTP/1.1\r\n" + host + key + "Content-Length: -1"), nil,
			"400 closed"},
		{"an unknown transfer encoding",
			head("POST /api/v1/tasks HTTP/1.1\r\n" + host + key + "Transfer-Encoding: gzip, chunked"), nil,
			"501 closed"},
		{"a header that is invalid", head("GET /healthz HTTP/1.1\r\n" + host + "no colon"), nil, "400 closed"},
		{"a folded header", head("GET /healthz HTTP/1.1\r\n" + host + " folded: x"), nil, "400 closed"},
	}
}

// endlessChunks sends blanks, which are valid JSON so far, until nobody reads.
func endlessChunks(w io.Writer) {
	chunk := []byte("4000\r\n" + strings.Repeat(" ", 0x4000) + "\r\n")
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func manyHeaders() string {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "X-%d: y\r\n", i)
	}
	return b.String()
}

// bomb is 100 MB of a JSON string in 100 KB.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	block := bytes.Repeat([]byte("x"), 1<<20)
	_, _ = io.WriteString(z, `{"title":"`)
	for range 100 {
		_, _ = z.Write(block)
	}
	_, _ = io.WriteString(z, `"}`)
	_ = z.Close()
	return b.Bytes()
})
