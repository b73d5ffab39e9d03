package devredis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const minMajor = 7 // functions of the engine's scripts need 7.0

// findBinary looks for a redis-server that can be started; empty with the
// reason when there is none.
func findBinary(ctx context.Context) (binary, why string) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return "", "there is no redis-server on PATH"
	}
	if why := versionProblem(ctx, binary); why != "" {
		return "", why
	}
	return binary, ""
}

// versionProblem says why a binary cannot be used; empty when it can.
func versionProblem(ctx context.Context, binary string) string {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return fmt.Sprintf("%s does not run (%v)", binary, err)
	}
	_, rest, _ := strings.Cut(string(out), "v=")
	version, _, _ := strings.Cut(rest, " ")
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil || major < minMajor {
		return fmt.Sprintf("%s is version %q, 7.0 or newer is needed", binary, version)
	}
	return ""
}

// noBinaryError is returned if a redis-server has to be started and none is installed.
type noBinaryError struct {
	dir   string
	why   string
	state bool // dir holds what an earlier one wrote
}

func (e *noBinaryError) Error() string {
	const remedy = "put redis-server 7.0 or newer on PATH (apt-get install redis-server), then start again"
	if !e.state {
		return e.why + ": " + remedy
	}
	return fmt.Sprintf("the state of an earlier start is in %s, but %s: %s, or use another --data", e.dir, e.why,
		remedy)
}

// newNoBinaryError is asked while nothing runs in dir, so what lies there is all there is.
func newNoBinaryError(dir, why string) error {
	state, err := HasState(dir)
	if err != nil {
		return err
	}
	return &noBinaryError{dir: dir, why: why, state: state}
}

// HasState reports whether a redis-server has kept state in dir: such a
// directory is never served from memory.
func HasState(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, appendOnlyDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// appendOnlyDir is where a redis-server keeps its state, from its first moment.
const appendOnlyDir = "appendonlydir"
