package settings

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/rig"
)

func TestRedisURLs(t *testing.T) {
	for text, want := range map[string]string{
		"redis://127.0.0.1:6379/2":                        "[127.0.0.1:6379] db 2",
		"redis://a":                                       "[a:6379] db 0",
		"redis://[::1]":                                   "[[::1]:6379] db 0",
		"redis://a:6379?db=3":                             "[a:6379] db 3",
		"redis://u:p@a/":                                  "[a:6379] db 0 user u:p",
		"redis://:p%40ss@a":                               "[a:6379] db 0 user :p@ss",
		"rediss://:secret@redis.example:6380":             "[redis.example:6380] db 0 user :secret tls",
		"rediss://a:6379?skip_verify=true":                "[a:6379] db 0 tls unverified",
		"rediss://a?tls_server_name=b":                    "[a:6379] db 0 tls as b",
		"unix:///tmp/redis.sock":                          "[/tmp/redis.sock] db 0",
		"unix://u:p@/tmp/redis.sock?db=4":                 "[/tmp/redis.sock] db 4 user u:p",
		"redis://a?master_name=m&addr=b:1&db=2":           "[a:26379 b:1] db 2 sentinels m",
		"redis://u:p@a?master_name=m&sentinel_password=s": "[a:26379] db 0 user u:p sentinels m as :s",
		"rediss://a/1?master_name=m&sentinel_username=x&sentinel_password=s": "[a:26379] db 1 sentinels m as x:s tls",
		"redis://u:p@a:6379?addr=b:6379&addr=c":                              "[a:6379 b:6379 c:6379] db 0 user u:p cluster",
		"rediss://a?cluster=true":                                            "[a:6379] db 0 cluster tls",
		"redis://a/0?addr=b":                                                 "[a:6379 b:6379] db 0 cluster",
	} {
		o, err := ParseRedisURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := optionsText(o); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

func optionsText(o redis.UniversalOptions) string {
	s := fmt.Sprintf("%v db %d", o.Addrs, o.DB)
	if o.Username+o.Password != "" {
		s += " user " + o.Username + ":" + o.Password
	}
	if o.MasterName != "" {
		s += " sentinels " + o.MasterName
	}
	if o.SentinelUsername+o.SentinelPassword != "" {
		s += " as " + o.SentinelUsername + ":" + o.SentinelPassword
	}
	if o.IsClusterMode {
		s += " cluster"
	}
	if o.TLSConfig != nil {
		s += " tls"
		if o.TLSConfig.ServerName != "" {
			s += " as " + o.TLSConfig.ServerName
		}
		if o.TLSConfig.InsecureSkipVerify {
			s += " unverified"
		}
	}
	return s
}

// What cannot be used is refused with a reason, and never shows a password.
func TestRefusedRedisURLs(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                 "not a URL",
		"127.0.0.1:6379":                                   "not a URL",
		"http://x":                                         "starts with none of",
		"redis://:secret@x:port":                           "not a URL",
		"redis://:secret@x:99999":                          "HOST:PORT",
		"redis://:secret@":                                 "HOST:PORT",
		"redis://a?addr=b:":                                "HOST:PORT",
		"redis://:secret@x/notadb":                         "number such as 0",
		"redis://x/-1":                                     "number such as 0",
		"redis://x/1?db=2":                                 "given twice",
		"redis://x?db=1&db=2":                              "given twice",
		"redis://x?db=":                                    "is empty",
		"unix://":                                          "unix:///path",
		"unix://host/path":                                 "unix:///path",
		"unix:///tmp/s?addr=b":                             `a socket has no parameter "addr"`,
		"unix:///tmp/s?client_name=secret":                 `no parameter "client_name"`,
		"redis://:secret@a?pool_size=5":                    `one server has no parameter "pool_size"`,
		"redis://:secret@a?read_timeout=3s":                `no parameter "read_timeout"`,
		"redis://a?skip_verify=true":                       `no parameter "skip_verify"`,
		"redis://a?tls_ca=x":                               `no parameter "tls_ca"`,
		"redis://a?addr=b:1&protocol=2":                    `a Cluster has no parameter "protocol"`,
		"redis://a?addr=b:1&db=1":                          `a Cluster has no parameter "db"`,
		"redis://a/1?addr=b:1":                             "database 0 only",
		"redis://a?cluster=yes":                            "can only be true",
		"redis://a?master_name=m&cluster=true":             `Sentinels has no parameter "cluster"`,
		"redis://a?master_name=m&password=secret":          `no parameter "password"`,
		"redis://a?master_name=m&master_name=n":            "given twice",
		"redis://a?sentinel_password=secret":               `no parameter "sentinel_password"`,
		"redis://u@a":                                      "without a password",
		"redis://a?master_name=m&sentinel_username=secret": "without a password",
		"rediss://a?skip_verify=maybe":                     "true or false",
		"rediss://a?tls_ca=/nowhere/ca":                    "tls_ca: open /nowhere/ca",
		"rediss://a?tls_ca=/dev/null":                      "holds no certificate",
		"rediss://a?tls_cert=x":                            "go together",
		"rediss://a?tls_cert=/nowhere&tls_key=/nowhere":    "tls_cert and tls_key:",
	} {
		_, err := ParseRedisURL(text)
		if err == nil || exit.Code(err) != exit.Usage || strings.Contains(err.Error(), "secret@") ||
			strings.Contains(err.Error(), "=secret") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"redis://u:secret@x:1", "redis://x:1?master_name=m&sentinel_password=secret",
		"redis://x?password=secret", "redis://:secret@x:port"} {
		if got := RedactedRedisURL(text); strings.Contains(got, "secret") {
			t.Errorf("redisName shows the password: %s", got)
		}
	}
}

// tryRedisURL asks what a URL names who it is.
func tryRedisURL(t *testing.T, text string) error {
	t.Helper()
	o, err := ParseRedisURL(text)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	c := redis.NewUniversalClient(&o)
	defer c.Close()
	return c.Set(t.Context(), "picket", "here", 0).Err()
}

// expectRedisURLs checks which of some URLs lead to a store.
func expectRedisURLs(t *testing.T, urls map[string]bool) {
	t.Helper()
	redis.SetLogger(noLog{})
	for text, want := range urls {
		if err := tryRedisURL(t, text); (err == nil) != want {
			t.Errorf("%s: %v, want success: %v", text, err, want)
		}
	}
}

// noLog discards what the Redis driver logs.
type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

const redisUser = "--user app on >pw ~* &* +@all"

func TestRedisURLOfSentinels(t *testing.T) {
	s := rig.StartSentinels(t, rig.SentinelConfig{Username: "watch", Password: "spw",
		Args: append(strings.Fields(redisUser), "--user", "default", "on", "nopass", "~none", "&*", "+@all", "-set")})
	at := s.Sentinels[0].Addr
	rest := "&addr=" + s.Sentinels[1].Addr + "&addr=" + s.Sentinels[2].Addr
	expectRedisURLs(t, map[string]bool{
		"redis://app:pw@" + at + "?master_name=picket&sentinel_username=watch&sentinel_password=spw" + rest: true,
		"redis://app:pw@" + at + "/3?master_name=picket&sentinel_username=watch&sentinel_password=spw":      true,
		// one of them is away
		"redis://app:pw@127.0.0.1:1?master_name=picket&sentinel_username=watch&sentinel_password=spw" + rest:   true,
		"redis://app:pw@" + at + "?master_name=picket&sentinel_username=watch&sentinel_password=wrong" + rest:  false,
		"redis://app:pw@" + at + "?master_name=picket" + rest:                                                  false,
		"redis://app:wrong@" + at + "?master_name=picket&sentinel_username=watch&sentinel_password=spw" + rest: false,
		// the default user may not
		"redis://" + at + "?master_name=picket&sentinel_username=watch&sentinel_password=spw" + rest:        false,
		"redis://app:pw@" + at + "?master_name=nobody&sentinel_username=watch&sentinel_password=spw" + rest: false,
	})
	if n, err := s.Primary().Do(t.Context(), "INFO", "keyspace").Text(); err != nil ||
		!strings.Contains(n, "db3:keys=1") {
		t.Errorf("the path chose no database: %q, %v", n, err)
	}
}

func TestRedisURLOfACluster(t *testing.T) {
	c := rig.StartCluster(t, strings.Fields(redisUser)...)
	at := c.Nodes[0].Addr
	expectRedisURLs(t, map[string]bool{
		"redis://app:pw@" + at + "?cluster=true":               true,
		"redis://app:pw@127.0.0.1:1?addr=" + at:                true,
		"redis://app:wrong@" + at + "?addr=" + c.Nodes[1].Addr: false,
		"redis://app:pw@127.0.0.1:1?cluster=true":              false,
	})
}

func TestRedisURLWithTLS(t *testing.T) {
	dir := t.TempDir()
	writeCertificates(t, dir)
	port := strconv.Itoa(rig.FreePort(t))
	file := func(name string) string { return filepath.Join(dir, name) }
	rig.StartNode(t, "--tls-port", port, "--tls-cert-file", file("server.crt"), "--tls-key-file", file("server.key"),
		"--tls-ca-cert-file", file("ca.crt"), "--tls-auth-clients", "yes")
	q := func(pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return "rediss://127.0.0.1:" + port + "?" + v.Encode()
	}
	cert, key, ca := file("client.crt"), file("client.key"), file("ca.crt")
	expectRedisURLs(t, map[string]bool{
		q("tls_ca", ca, "tls_cert", cert, "tls_key", key, "tls_server_name", "redis.example"): true,
		// the host is its name
		strings.Replace(q("tls_ca", ca, "tls_cert", cert, "tls_key", key), "127.0.0.1", "localhost", 1): true,
		q("tls_cert", cert, "tls_key", key, "skip_verify", "true"):                                      true,
		// not the server's name
		q("tls_ca", ca, "tls_cert", cert, "tls_key", key):                                     false,
		q("tls_ca", ca, "tls_cert", cert, "tls_key", key, "tls_server_name", "other.example"): false,
		// signed by nobody known
		q("tls_cert", cert, "tls_key", key, "tls_server_name", "redis.example"): false,
		q("tls_ca", ca, "tls_server_name", "redis.example"):                     false, // shows no certificate
		"redis://127.0.0.1:" + port:                                             false,
	})
}

// writeCertificates writes an authority, and a server's and a client's certificate by it.
func writeCertificates(t *testing.T, dir string) {
	t.Helper()
	write := func(name, kind string, der []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber:          big.NewInt(int64(i + 1)),
			Subject:               pkix.Name{CommonName: name},
			NotAfter:              time.Now().Add(time.Hour),
			IsCA:                  i == 0,
			BasicConstraintsValid: true,
			DNSNames:              []string{"redis.example", "localhost"},
		}
		if i == 0 {
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(name+".crt", "CERTIFICATE", der)
		write(name+".key", "PRIVATE KEY", private)
	}
}
