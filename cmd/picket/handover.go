package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// A handover is what `picket run` gives its adapter. It goes through a pipe,
// because every process of the same user, agents included, can read
// environments and arguments.
type handover struct {
	Key      picket.Secret `json:"key"`      // the run key
	StateKey picket.Secret `json:"stateKey"` // encrypts what the adapter keeps in files
	Renewed  bool          `json:"renewed"`  // the key has to be renewed; false with an older server
}

// maxHandover is the maximum size of a handover, in bytes.
const maxHandover = 4096

// handOver makes a run key for an agent. If the server is an earlier version
// without run keys, the adapter uses the key of the person.
func (s *server) handOver(ctx context.Context, agent string, warn io.Writer) (handover, error) {
	h := handover{Key: s.client.Key, StateKey: stateKey(s.client.Key)}
	var made picket.NewRunKey
	err := s.post(ctx, "/api/v1/run-keys", picket.RunKeyRequest{AgentID: agent}, &made, nil)
	switch {
	case errors.Is(err, picket.CodeNotFound) || errors.Is(err, picket.CodeMethodNotAllowed):
		fmt.Fprintln(warn, "picket: the server is an earlier version without run keys, so the adapter uses your own key")
		return h, nil
	case err != nil:
		return h, err
	}
	h.Key, h.Renewed = made.Key, true
	return h, nil
}

// stateKey derives the key that encrypts the files of adapters. All adapters of
// one API key share it, so one can give back the leases that another one left.
func stateKey(key picket.Secret) picket.Secret {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte("state of adapters"))
	return picket.Secret(hex.EncodeToString(mac.Sum(nil)))
}

// send writes the handover into a pipe whose reader is the adapter.
func (h handover) send(w *os.File) error {
	b, err := json.Marshal(h)
	if err == nil {
		_, err = w.Write(b)
	}
	return errors.Join(err, w.Close())
}

// receive reads the handover from an inherited descriptor, and closes the
// descriptor before any agent is started. It fails if `picket run` was killed
// before it had sent everything.
func receive(fd int) (h handover, err error) {
	f := os.NewFile(uintptr(fd), "handover")
	if f == nil {
		return h, usage("--handover: %d is not an open descriptor", fd)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxHandover))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil || h.Key == "" {
		return h, usage("`picket run` ended before it handed over a key")
	}
	return h, nil
}

// withoutKey returns env without PICKET_API_KEY.
func withoutKey(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, "PICKET_API_KEY=") {
			kept = append(kept, v)
		}
	}
	return kept
}

const (
	renewRunKeyAfter = picket.RunKeyLife / 3
	lookAtRunKey     = time.Minute
)

// runKeyRenewal renews a run key while its adapter works.
type runKeyRenewal struct {
	renew func(context.Context) error
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
	log   *slog.Logger
}

// keepRunKey renews a run key until ctx ends.
func (s *server) keepRunKey(ctx context.Context, log *slog.Logger) {
	runKeyRenewal{
		renew: func(ctx context.Context) error {
			return s.client.Call(ctx, http.MethodPost, "/api/v1/run-keys/renew", struct{}{}, nil)
		},
		now: func() time.Time { return time.Now().Round(0) }, sleep: sleep, log: log,
	}.keep(ctx)
}

// keep renews the key until ctx ends or the key has ended. Time in suspend
// counts, so it looks at the clock of the wall once a minute. A renewal that
// failed is tried again a minute later.
func (r runKeyRenewal) keep(ctx context.Context) {
	renewed, failing := r.now(), false
	for r.sleep(ctx, lookAtRunKey) == nil {
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
			r.log.Warn("the run key was not renewed; it is tried again every minute", "expires", renewed.Add(picket.RunKeyLife), "err", err)
		}
		failing = err != nil
	}
}

// endRunKey ends a run key that is no longer needed. If that fails, the key
// expires within a day.
func (s *server) endRunKey(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.client.Call(ctx, http.MethodDelete, "/api/v1/run-keys", nil, nil); err != nil {
		log.Debug("the run key could not be ended; it expires within a day", "err", err)
	}
}
