package adapter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/text"
)

// bundleSender hands the branch of a run in as a bundle, so that another machine can continue it if
// this one dies: while the agent works, at most once a minute and only when the branch has moved,
// and once more after the last commit. No part of a run waits for it except the last time.
type bundleSender struct {
	*runScope
	locked *workspace.Locked
	runLog io.Writer // the output of the run
	sent   string    // the commit that was handed in last
	failed string    // the last error that the output was told
	never  bool      // this server takes no bundles

	stop context.CancelFunc
	done chan struct{} // closed once the branch is not looked at any more; nil: it never was
}

const (
	// lastBundleTimeout bounds what is handed in after the last commit. The run is not reported
	// ended before.
	lastBundleTimeout = 30 * time.Second
	// bundleTimeout bounds what is handed in while the agent works.
	bundleTimeout = 3 * time.Minute
)

// start begins to look at the branch. held ends with the lease.
func (s *bundleSender) start(held context.Context, k *workspace.Locked, runLog io.Writer) {
	if k == nil || k.Source != workspace.Worktree || len(s.cfg.workspaceStore().Sources) > 0 {
		return
	}
	s.locked, s.runLog, s.done = k, runLog, make(chan struct{})
	held, s.stop = context.WithCancel(held)
	go func() {
		defer close(s.done)
		tick := time.NewTicker(cmp.Or(s.cfg.pushEvery, time.Minute))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-held.Done():
				return
			}
			if err := s.send(held, bundleTimeout); err != nil && held.Err() == nil && err.Error() != s.failed {
				s.failed = err.Error()
				fmt.Fprintf(s.runLog, "\n[picket: the branch is only on this machine: %s]\n", s.failed)
			}
		}
	}()
}

// end ends the looks at the branch, and waits until nothing of them runs.
func (s *bundleSender) end() {
	if s.done != nil {
		s.stop()
		<-s.done
	}
}

// sendLast hands in what the last commit has added. It gives up soon after ctx has ended. The answer is
// what a reviewer should know.
func (s *bundleSender) sendLast(ctx context.Context) (note string) {
	if s.done == nil {
		return ""
	}
	sending, cancel := outlast(ctx)
	defer cancel()
	if err := s.send(sending, lastBundleTimeout); err != nil {
		return "[picket: the branch is only on the machine of the worker: " + err.Error() + "]\n"
	}
	return ""
}

// send hands the branch in, if it has moved since the last time.
func (s *bundleSender) send(ctx context.Context, within time.Duration) error {
	if s.never {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	store := s.cfg.workspaceStore()
	tip := store.BranchTip(ctx, s.locked)
	if tip == "" || tip == s.locked.Base || tip == s.sent {
		return nil
	}
	data, tip, err := store.Bundle(ctx, s.locked)
	if errors.Is(err, workspace.ErrNoWork) {
		return nil
	}
	if err == nil {
		err = s.proxy.Bundle(ctx, data, picket.Bundle{Branch: s.locked.Branch, Base: s.locked.Base, Tip: tip})
	}
	if takesNone(err) {
		s.never = true
		s.log.Info("this server keeps no bundles of branches")
		return nil
	}
	if err != nil {
		s.log.Warn("the bundle of the branch is not handed in", "commit", tip, "err", err)
		return errors.New(text.Head(text.Printable(err.Error()), 512))
	}
	s.sent, s.failed = tip, ""
	s.log.Info("the bundle of the branch was handed in", "commit", tip, "bytes", len(data))
	return nil
}

// takesNone reports whether a server takes no bundles: one of an earlier version, or one with
// quota.bundle_bytes: 0.
func takesNone(err error) bool {
	if errors.Is(err, picket.CodeNotFound) {
		return true
	}
	refusal, ok := errors.AsType[*picket.Error](err)
	return ok && refusal.Code == picket.CodeQuota && fmt.Sprint(refusal.Facts["limit"]) == "0"
}

// maxBundleTries bounds how often an upload begins again because another one took its place.
const maxBundleTries = 3

// Bundle hands in a git bundle of the branch of the task, in place of an earlier one. about names the
// branch, its base and its tip; the rest is filled in. Only the newest run of a task may call it.
// It can be repeated, also after it was cut off at any point.
func (p *Proxy) Bundle(ctx context.Context, data []byte, about picket.Bundle) (err error) {
	sum := sha256.Sum256(data)
	about.SHA256, about.Size = hex.EncodeToString(sum[:]), int64(len(data))
	for range maxBundleTries {
		if err = p.sendBundle(ctx, data, about); !errors.Is(err, picket.CodeStateConflict) {
			break
		}
	}
	return err
}

func (p *Proxy) sendBundle(ctx context.Context, data []byte, about picket.Bundle) error {
	path := "/v1/run/bundle/" + about.SHA256 + "/"
	size := "?" + url.Values{"size": {strconv.FormatInt(about.Size, 10)}}.Encode()
	for n := range picket.BundlePieces(about.Size) {
		from := n * picket.BundlePieceSize
		piece := data[from:min(from+picket.BundlePieceSize, len(data))]
		var stored struct {
			Kept bool `json:"kept"`
		}
		err := patiently(ctx, func(ctx context.Context) error {
			return p.post(ctx, path+strconv.Itoa(n)+size, client.Bytes(piece), &stored)
		})
		if err != nil {
			return err
		}
		if stored.Kept {
			break
		}
	}
	in := struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
		Branch string `json:"branch"`
		Base   string `json:"base"`
		Tip    string `json:"tip"`
	}{about.SHA256, about.Size, about.Branch, about.Base, about.Tip}
	return patiently(ctx, func(ctx context.Context) error { return p.post(ctx, "/v1/run/bundle", in, nil) })
}

// patiently repeats a step that has one effect however often it is made, while that may help.
func patiently(ctx context.Context, step func(context.Context) error) error {
	left := 5
	pace := backoff{least: 100 * time.Millisecond, most: 2 * time.Second}
	return retry(ctx, pace, func() bool { left--; return left == 0 }, step)
}

// bundleSource brings the branch of a task from the bundle that the server keeps.
func (w *runWorkspace) bundleSource() workspace.BranchSource {
	return workspace.BranchSource{Name: "bundle", Fetch: func(ctx context.Context, into *workspace.BareRepository,
		repo workspace.Repository, _ picket.Lease, taskID string) error {
		err := w.fetchBundle(ctx, into, repo, taskID)
		if err != nil && !errors.Is(err, errNoBundle) {
			w.notBrought = err.Error()
		}
		return err
	}}
}

var errNoBundle = errors.New("the server keeps no bundle of it")

// fetchBundle reads the bundle of a task, compares its digest, lets git check its objects, and takes
// the branch out of it. Nothing of a bundle that is not good reaches the user's repository.
func (w *runWorkspace) fetchBundle(ctx context.Context, into *workspace.BareRepository, repo workspace.Repository,
	taskID string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := client.New(w.cfg.BaseURL, w.cfg.Key, client.Options{HTTP: w.cfg.HTTP, Attempts: 4})
	var data bytes.Buffer
	var about picket.Bundle
	var err error
	for range maxBundleTries { // another bundle may take the place of the one that is read
		data.Reset()
		about, err = c.Tasks.DownloadBundle(ctx, taskID, &data, workspace.MaxBundle)
		if !errors.Is(err, picket.CodeNotFound) || about.SHA256 == "" {
			break
		}
	}
	if errors.Is(err, picket.CodeNotFound) {
		return errNoBundle
	}
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	_, err = into.ImportSince(ctx, repo, about.Base, &data, workspace.MaxBundle, taskID)
	return err
}
