package attach

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// A handover is what `picket run` gives its adapter. Every process of the same
// user, agents included, can read environments, arguments and pipes of a
// process that is not hidden. So it goes through a socket, which nobody can open
// in /proc, and is sent only after the adapter says that it is hidden.
type adapterSecrets struct {
	Key      picket.Secret `json:"key"`      // the run key
	StateKey picket.Secret `json:"stateKey"` // encrypts what the adapter keeps in files
}

// maxSecretsSize is the maximum size of a handover, in bytes.
const maxSecretsSize = 4096

// newAdapterSecrets makes a run key for an agent. It never hands over the key of the
// person, because an answer without a run key may come from a wrong URL.
func newAdapterSecrets(ctx context.Context, s *cli.Connection, agent string) (adapterSecrets, error) {
	made, err := s.RunKeys.Create(ctx, picket.RunKeyRequest{AgentID: agent})
	switch {
	case errors.Is(err, picket.CodeNotFound) || errors.Is(err, picket.CodeMethodNotAllowed):
		return adapterSecrets{}, noRunKeyError(s, term.OneLine(err.Error()))
	case err != nil:
		return adapterSecrets{}, err
	case made.Key == "":
		return adapterSecrets{}, noRunKeyError(s, "its answer holds no key")
	}
	return adapterSecrets{Key: made.Key, StateKey: stateKey(s.Key())}, nil
}

// noRunKeyError refuses to go on with a server that makes no run keys.
func noRunKeyError(s *cli.Connection, why string) error {
	return picket.Refuse(picket.CodeNotAvailable,
		"Check that the URL is that of the server, and update a server of an earlier version. "+
			"Or start `picket adapter` with a key of its own (`picket key create NAME --scope agent`), and give it tasks with `picket task create`.",
		"%s makes no run key (%s), and an adapter does not get your own key", s.URL(), why)
}

// stateKey derives the key that encrypts the files of adapters. All adapters of
// one API key share it, so one can give back the leases that another one left.
func stateKey(key picket.Secret) picket.Secret {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte("state of adapters"))
	return picket.Secret(hex.EncodeToString(mac.Sum(nil)))
}

// hideTimeout is the maximum time until an adapter says that it is hidden.
var hideTimeout = 30 * time.Second

// secretSockets makes the two connected ends of a handover.
func secretSockets() (ours, adapters *os.File, err error) {
	syscall.ForkLock.RLock()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(ends[0])
		unix.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	err = unix.SetNonblock(ends[0], true) // so that it can have a deadline
	ours, adapters = os.NewFile(uintptr(ends[0]), "handover"), os.NewFile(uintptr(ends[1]), "handover")
	if err == nil {
		err = ours.SetDeadline(time.Now().Add(hideTimeout))
	}
	if err != nil {
		return nil, nil, errors.Join(err, ours.Close(), adapters.Close())
	}
	return ours, adapters, nil
}

// send sends the handover after the adapter has said that it is hidden. Before
// that, every process of the same user could look into the adapter.
func (h adapterSecrets) send(adapter *os.File) error {
	if _, err := io.ReadFull(adapter, make([]byte, 1)); err != nil {
		return err
	}
	HandoverHook("hidden")
	b, err := json.Marshal(h)
	if err == nil {
		_, err = adapter.Write(b)
	}
	return errors.Join(err, adapter.Close())
}

// receiveSecrets hides this process and then reads the handover from an inherited
// socket. It closes the socket before any agent is started. It fails if
// `picket run` was killed before it had sent everything.
func receiveSecrets(fd int) (h adapterSecrets, err error) {
	f := os.NewFile(uintptr(fd), "handover")
	if f == nil {
		return h, exit.Usagef("--handover: %d is not an open descriptor", fd)
	}
	defer f.Close()
	if err := HideProcess(); err != nil {
		return h,
			exit.Usagef("the adapter cannot hide its key from other processes (%v), so it takes none: allow prctl(PR_SET_DUMPABLE)", err)
	}
	var b []byte
	if _, err = f.Write([]byte{1}); err == nil { // now this process is hidden
		b, err = io.ReadAll(io.LimitReader(f, maxSecretsSize))
	}
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil || h.Key == "" {
		return h, exit.Usagef("`picket run` ended before it handed over a key")
	}
	return h, nil
}

// withoutAPIKey returns env without PICKET_API_KEY.
func withoutAPIKey(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, "PICKET_API_KEY=") {
			kept = append(kept, v)
		}
	}
	return kept
}

const (
	renewRunKeyAfter = picket.RunKeyLifetime / 3
	runKeyCheckEvery = time.Minute
)

// runKeyRenewal renews a run key while its adapter works.
type runKeyRenewal struct {
	renew func(context.Context) error
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
	log   *slog.Logger
}

// keepRunKeyRenewed renews a run key until ctx ends.
func keepRunKeyRenewed(ctx context.Context, s *cli.Connection, log *slog.Logger) {
	runKeyRenewal{
		renew: func(ctx context.Context) error {
			_, err := s.RunKeys.Renew(ctx)
			return err
		},
		now: func() time.Time { return time.Now().Round(0) }, sleep: cli.Sleep, log: log,
	}.run(ctx)
}

// run renews the key until ctx ends or the key has ended. Time in suspend
// counts, so it looks at the clock of the wall once a minute. A renewal that
// failed is tried again a minute later.
func (r runKeyRenewal) run(ctx context.Context) {
	renewed, failing := r.now(), false
	for r.sleep(ctx, runKeyCheckEvery) == nil {
		if r.now().Sub(renewed) < renewRunKeyAfter {
			continue
		}
		err := r.renew(ctx)
		switch {
		case err == nil:
			renewed = r.now()
			if failing {
				r.log.Info("the run key is renewed again")
			}
		case errors.Is(err, picket.CodeUnauthenticated):
			r.log.Error("the run key was revoked or has expired; no more tasks are taken. A revocation also ends the running agents. " +
				"To go on, start picket run again with a valid key")
			return
		case ctx.Err() == nil && !failing:
			r.log.Warn("the run key was not renewed; it is tried again every minute", "expires",
				renewed.Add(picket.RunKeyLifetime), "err", err)
		}
		failing = err != nil
	}
}

// deleteRunKey ends a run key that is no longer needed. If that fails, the key
// expires within a day.
func deleteRunKey(s *cli.Connection, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.RunKeys.End(ctx); err != nil {
		log.Debug("the run key could not be ended; it expires within a day", "err", err)
	}
}
