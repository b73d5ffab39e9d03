package devredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// errLoading means that the server is reading its file and will answer later.
var errLoading = errors.New("the store is still loading its file")

// sendCommand sends one command on a connection of its own. It returns the reply as
// text, the elements of a list joined by line ends.
func sendCommand(ctx context.Context, socket string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket) // here, since the client logs what it cannot dial
	if err != nil {
		return "", err
	}
	defer conn.Close()
	client := redis.NewClient(&redis.Options{
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Protocol:              2,
		DisableIdentity:       true,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	reply, err := client.Do(ctx, args...).Result()
	if redis.HasErrorPrefix(err, "LOADING") {
		return "", errLoading
	}
	list, ok := reply.([]any)
	if !ok {
		list = []any{reply}
	}
	var parts []string
	for _, part := range list {
		parts = append(parts, fmt.Sprint(part))
	}
	return strings.Join(parts, "\n"), err
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
