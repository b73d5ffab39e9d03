package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// replayUser is the user as which Redis replays its append-only file. What is in a
// transaction there, as all that a script has changed is, it leaves out where
// this user may not do it, says so in its own log alone, and serves what is left.
const replayUser = "default"

// replayedWrites are the writes of transitions, as they stand in the file.
var replayedWrites = []string{
	"SET k v", "DEL k", "PEXPIREAT k 1", "HSET k f v", "HDEL k f", "HINCRBY k f 1", "SADD k m", "ZADD k 1 m",
	"ZREM k m", "ZREMRANGEBYSCORE k 0 1",
	"LPUSH k v", "RPUSH k v", "LPOP k", "LTRIM k 0 1", "XADD k 1-1 f v", "XDEL k 1-1", "XTRIM k MAXLEN 1",
}

// checkLoading asks whether the server would load at its next start what it
// keeps now.
func (n *node) checkLoading(ctx context.Context) error {
	const remedy = "ACL SETUSER default ~* &* +@all, and the same in the ACL file; with off nobody can sign in as this user."
	var lacks []string
	for _, write := range replayedWrites {
		may, err := n.mayDefault(ctx, strings.Fields(strings.Replace(write, " k", " pk:{check}:k", 1)))
		if refusal := redis.Error(nil); errors.As(err, &refusal) {
			n.refuse("Allow the user to ask: ACL SETUSER … +acl|dryrun. And see to it that the user default has all rights, as in the ACL file in docs/redis.md.",
				"the user may not ask whether the server loads all that it keeps: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		if !may {
			name, _, _ := strings.Cut(write, " ")
			lacks = append(lacks, name)
		}
	}
	if more := len(lacks) - 4; more > 0 {
		lacks = append(lacks[:4], fmt.Sprintf("%d more", more))
	}
	if len(lacks) > 0 {
		n.refuse(remedy,
			"Redis loads its append-only file as the user default, and that one may not %s: its next start loses what was acknowledged, without an error",
			strings.Join(lacks, ", "))
	}
	return nil
}

// mayDefault asks without trying.
func (n *node) mayDefault(ctx context.Context, write []string) (bool, error) {
	args := []any{"ACL", "DRYRUN", replayUser}
	for _, word := range write {
		args = append(args, word)
	}
	said, err := n.client.Do(ctx, args...).Text()
	return said == "OK", err
}
