package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// redisOptions reads a Redis URL: redis:// and rediss:// for one server,
// unix:// for a socket, ?master_name= for Sentinel, ?addr= for further nodes of
// a Sentinel or a Cluster. Whatever else the driver would read from a URL is
// refused, for the engine sets it itself.
func redisOptions(text string) (redis.UniversalOptions, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return redis.UniversalOptions{}, badRedisURL("it is not a URL")
	}
	q := u.Query()
	if err := checkRedisParameters(u.Scheme, q); err != nil {
		return redis.UniversalOptions{}, err
	}
	switch {
	case u.Scheme == "unix":
		o, err := redis.ParseURL(text)
		if err != nil {
			return redis.UniversalOptions{}, badRedisURL(reason(err))
		}
		return redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, DB: o.DB}, nil
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(text)
		if err != nil {
			return redis.UniversalOptions{}, badRedisURL(reason(err))
		}
		return redis.UniversalOptions{Addrs: o.SentinelAddrs, MasterName: o.MasterName, Username: o.Username, Password: o.Password,
			SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword, DB: o.DB, TLSConfig: o.TLSConfig}, nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(text)
		if err != nil {
			return redis.UniversalOptions{}, badRedisURL(reason(err))
		}
		return redis.UniversalOptions{Addrs: o.Addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, IsClusterMode: true}, nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return redis.UniversalOptions{}, badRedisURL(reason(err))
	}
	return redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig}, nil
}

// checkRedisParameters refuses what would be accepted and ignored.
func checkRedisParameters(scheme string, q url.Values) error {
	known := []string{"db"}
	switch {
	case scheme == "unix":
	case q.Has("master_name"):
		known = append(known, "master_name", "addr", "username", "password")
	case q.Has("addr"):
		known = []string{"addr"}
	}
	if scheme == "rediss" && (q.Has("master_name") || !q.Has("addr")) {
		known = append(known, "skip_verify")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			e := badRedisURL(fmt.Sprintf("parameter %q is not known here", name))
			e.Remedy = "Leave it out; known in this form are: " + strings.Join(known, ", ") + "."
			return e
		}
	}
	return nil
}

// reason drops the URL, and with it a password, from an error.
func reason(err error) string {
	_, after, found := strings.Cut(err.Error(), "redis: ")
	if !found {
		return "it cannot be read"
	}
	return after
}

func badRedisURL(why string) *picket.Error {
	return picket.Refuse(codeUsage, "Write for example redis://:password@10.0.0.5:6379/0.", "the Redis URL cannot be used: %s", why)
}

// redisName shows a URL without its password.
func redisName(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "redis"
	}
	if q := u.Query(); q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}
