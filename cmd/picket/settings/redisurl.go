package settings

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// ParseRedisURL reads a Redis URL: redis:// and rediss:// (TLS) for one server,
// unix:// for a socket, ?master_name= for Sentinels, ?addr= or ?cluster=true
// for a Cluster. A parameter that it does not know, or that has no meaning in
// this form, is refused: nothing is accepted and ignored.
func ParseRedisURL(text string) (redis.UniversalOptions, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return redis.UniversalOptions{}, badRedisURL("it is not a URL")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return redis.UniversalOptions{}, badRedisURL("its parameters cannot be read")
	}
	r := redisURL{u: u, q: q}
	for _, read := range []func() error{r.checkForm, r.checkParameters, r.readAddresses, r.readCredentials, r.readDB,
		r.readTLS} {
		if err := read(); err != nil {
			return redis.UniversalOptions{}, err
		}
	}
	return r.out, nil
}

// redisForms are the forms of a Redis URL and the parameters each has beside
// those of TLS.
var redisForms = map[string][]string{
	"one server": {"db"},
	"a socket":   {"db"},
	"Sentinels":  {"addr", "db", "master_name", "sentinel_password", "sentinel_username"},
	"a Cluster":  {"addr", "cluster"},
}

var tlsParameters = []string{"skip_verify", "tls_ca", "tls_cert", "tls_key", "tls_server_name"}

type redisURL struct {
	u    *url.URL
	q    url.Values
	form string
	out  redis.UniversalOptions
}

func (r *redisURL) checkForm() error {
	switch {
	case r.u.Scheme == "unix":
		r.form = "a socket"
	case r.u.Scheme != "redis" && r.u.Scheme != "rediss":
		return badRedisURL("it starts with none of redis://, rediss:// and unix://")
	case r.q.Has("master_name"):
		r.form = "Sentinels"
	case r.q.Has("addr") || r.q.Has("cluster"):
		r.form = "a Cluster"
	default:
		r.form = "one server"
	}
	return nil
}

func (r *redisURL) checkParameters() error {
	known := slices.Clone(redisForms[r.form])
	if r.u.Scheme == "rediss" {
		known = append(known, tlsParameters...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.q)) {
		if !slices.Contains(known, name) {
			e := badRedisURL(fmt.Sprintf("the URL of %s has no parameter %q", r.form, name))
			e.Remedy = "Leave it out; known in this form are: " + strings.Join(known, ", ") + "."
			if slices.Contains(tlsParameters, name) && r.form != "a socket" {
				e.Remedy = "Write rediss:// for TLS, or leave it out."
			}
			return e
		}
		if len(r.q[name]) > 1 && name != "addr" {
			return badRedisURL(fmt.Sprintf("the parameter %q is given twice", name))
		}
		if slices.Contains(r.q[name], "") {
			return badRedisURL(fmt.Sprintf("the parameter %q is empty", name))
		}
	}
	return nil
}

func (r *redisURL) readAddresses() error {
	if r.form == "a socket" {
		if r.u.Host != "" || r.u.Path == "" {
			return badRedisURL("a socket is written unix:///path/to/redis.sock")
		}
		r.out.Addrs = []string{r.u.Path}
		return nil
	}
	port := "6379"
	if r.form == "Sentinels" {
		port = "26379"
		r.out.MasterName = r.q.Get("master_name")
	}
	for _, host := range append([]string{r.u.Host}, r.q["addr"]...) {
		addr, err := hostPort(host, port)
		if err != nil {
			return err
		}
		r.out.Addrs = append(r.out.Addrs, addr)
	}
	if r.form == "a Cluster" {
		if r.q.Has("cluster") && r.q.Get("cluster") != "true" {
			return badRedisURL(`the parameter "cluster" can only be true`)
		}
		r.out.IsClusterMode = true
	}
	return nil
}

func hostPort(host, port string) (string, error) {
	u := url.URL{Host: host}
	if p := u.Port(); p != "" {
		port = p
	}
	n, err := strconv.Atoi(port)
	if u.Hostname() == "" || err != nil || n < 1 || n > 65535 || strings.HasSuffix(host, ":") {
		return "", badRedisURL("every address is written HOST or HOST:PORT")
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// readCredentials: the user in front of the host is always that of Redis; Sentinels
// may want to know another one.
func (r *redisURL) readCredentials() error {
	r.out.Username = r.u.User.Username()
	r.out.Password, _ = r.u.User.Password()
	r.out.SentinelUsername, r.out.SentinelPassword = r.q.Get("sentinel_username"), r.q.Get("sentinel_password")
	if r.out.Username != "" && r.out.Password == "" || r.out.SentinelUsername != "" && r.out.SentinelPassword == "" {
		return badRedisURL("a user without a password could not log in")
	}
	return nil
}

func (r *redisURL) readDB() error {
	path := strings.Trim(r.u.Path, "/")
	if r.form == "a socket" {
		path = ""
	}
	if path != "" && r.q.Has("db") {
		return badRedisURL("the database is given twice, in the path and as db")
	}
	text := path + r.q.Get("db")
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return badRedisURL("the database is a number such as 0")
	}
	if n > 0 && r.form == "a Cluster" {
		return badRedisURL("a Cluster has database 0 only")
	}
	r.out.DB = n
	return nil
}

// readTLS fills in what rediss:// asks for. Without tls_server_name every
// server has to own the host name it is reached by.
func (r *redisURL) readTLS() error {
	if r.u.Scheme != "rediss" {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.q.Get("tls_server_name")}
	switch r.q.Get("skip_verify") {
	case "", "false":
	case "true":
		c.InsecureSkipVerify = true
	default:
		return badRedisURL(`the parameter "skip_verify" is true or false`)
	}
	if file := r.q.Get("tls_ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return badRedisURL("tls_ca: " + err.Error())
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return badRedisURL("tls_ca: " + file + " holds no certificate in PEM")
		}
	}
	if r.q.Has("tls_cert") != r.q.Has("tls_key") {
		return badRedisURL("tls_cert and tls_key go together")
	}
	if r.q.Has("tls_cert") {
		pair, err := tls.LoadX509KeyPair(r.q.Get("tls_cert"), r.q.Get("tls_key"))
		if err != nil {
			return badRedisURL("tls_cert and tls_key: " + err.Error())
		}
		c.Certificates = []tls.Certificate{pair}
	}
	r.out.TLSConfig = c
	return nil
}

func badRedisURL(why string) *picket.Error {
	return picket.Refuse(exit.CodeUsage, "Write for example redis://:password@10.0.0.5:6379/0.",
		"the Redis URL cannot be used: %s", why)
}

// RedactedRedisURL shows a URL without its passwords, also of a URL that is refused.
func RedactedRedisURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "redis"
	}
	q := u.Query()
	for name := range q {
		if strings.Contains(name, "password") {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}
