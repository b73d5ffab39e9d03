package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

// A decision carries the digest of the review that the person saw. What
// `picket review show` has shown is remembered in a small file for each task, so
// that a later approve or reject is about exactly that.

// keepDigests is how long a digest that was shown is kept.
const keepDigests = 30 * 24 * time.Hour

// digestPath is the file for a task. It differs for each server and each key.
func (s *Connection) digestPath(task string) string {
	sum := sha256.Sum256([]byte(s.URL() + "\x00" + s.Key().Reveal()))
	return filepath.Join(settings.StateDir(), "shown", hex.EncodeToString(sum[:8])+"-"+task)
}

// saveDigest notes what the person has seen of a task in review.
func (s *Connection) saveDigest(task picket.Task) error {
	if task.State != picket.TaskReview || task.Review == nil || task.Review.Digest == "" {
		return nil
	}
	path := s.digestPath(task.TaskID)
	removeOldDigests(filepath.Dir(path))
	return files.WritePrivate(path, []byte(task.Review.Digest+"\n"))
}

func removeOldDigests(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keepDigests {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// savedDigest is the digest of what the person saw of a task, "" when it was not shown.
func (s *Connection) savedDigest(task string) string {
	b, err := os.ReadFile(s.digestPath(task))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s *Connection) removeDigest(task string) { _ = os.Remove(s.digestPath(task)) }

// decide makes a decision with the digest that --digest names, else with the one
// that was shown last. If the task was never shown, decide prints the review and
// sends its digest. At a terminal it asks the person first. If the review has
// changed by then, nothing is decided, because nobody has seen the change.
func (s *Connection) decide(cmd *cobra.Command, id string, send func(digest string) error) error {
	digest, _ := cmd.Flags().GetString("digest")
	if digest == "" {
		digest = s.savedDigest(id)
	}
	if digest == "" {
		task, err := s.printBrief(cmd.Context(), cmd.ErrOrStderr(), id)
		if err != nil {
			return err
		}
		if err := confirmDecision(cmd, task); err != nil {
			return err
		}
		if task.Review != nil {
			digest = task.Review.Digest
		}
	}
	return s.afterDecision(id, send(digest))
}

// confirmDecision asks a person at a terminal about the task that was just printed.
func confirmDecision(cmd *cobra.Command, task picket.Task) error {
	w := cmd.ErrOrStderr()
	if task.State != picket.TaskReview || !term.IsTerminal(cmd.InOrStdin()) || !term.IsTerminal(w) {
		return nil
	}
	fmt.Fprintf(w, "%s %s\n", task.TaskID, term.OneLine(task.Title))
	if output := strings.TrimSpace(text.Printable(OutputText(task.Output))); output != "" {
		fmt.Fprintln(w, output)
	}
	fmt.Fprintf(w, "type yes to %s it: ", cmd.Name())
	typed, err := readLine(cmd.InOrStdin())
	if err != nil {
		return err
	}
	if typed != "yes" {
		return picket.Refuse(exit.CodeUsage, "Look at the whole review: picket review show "+task.TaskID,
			"nothing was decided, because the answer was not yes")
	}
	return nil
}

// readLine reads one line and nothing after it, so that the next question can
// read the next line.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < 1024; {
		n, err := r.Read(one)
		if n > 0 && one[0] == '\n' || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		line = append(line, one[:n]...)
	}
	return strings.TrimSpace(string(line)), nil
}

// afterDecision forgets the digest of a task that is decided. If the task has changed,
// the error says how to look at it again.
func (s *Connection) afterDecision(id string, err error) error {
	var refusal *picket.Error
	if isChangedError(err) && errors.As(err, &refusal) {
		refusal.Remedy = "Look at the review again, then decide: picket review show " + id
		return err
	}
	if err == nil || errors.Is(err, picket.CodeTaskClosed) {
		s.removeDigest(id)
	}
	return err
}

func isChangedError(err error) bool {
	return errors.Is(err, picket.CodeVersion) || errors.Is(err, picket.CodePreconditionRequired)
}

// printBrief prints the evidence of a task in brief, if it has evidence.
func (s *Connection) printBrief(ctx context.Context, w io.Writer, id string) (picket.Task, error) {
	task, err := s.Tasks.Get(ctx, id)
	if err != nil || task.State != picket.TaskReview {
		return task, err
	}
	ev, _, err := s.completingEvidence(ctx, task)
	if err == nil && ev != nil {
		fmt.Fprintf(w, "branch %s\n%s\n", term.OneLine(ev.Branch), strings.TrimRight(text.Printable(ev.Diffstat), "\n"))
	}
	return task, err
}

// digestsOf returns the digests for a decision about many tasks: those that
// `picket review show` has shown. The rows of the queue contain a digest, too, but
// no evidence, so nobody has seen what it stands for. The server refuses a task
// that has evidence and no digest.
func (s *Connection) digestsOf(rows []picket.PendingReview) map[string]string {
	digests := map[string]string{}
	for _, r := range rows[:min(len(rows), maxBulkApproval)] {
		if shown := s.savedDigest(r.TaskID); shown != "" {
			digests[r.TaskID] = shown
		}
	}
	return digests
}

// digestFlag adds --digest, with which a script names the review it decides about.
func digestFlag(c *cobra.Command) *cobra.Command {
	c.Flags().String("digest", "",
		"decide only if the review has this digest (default: that of the last `review show`, else of what this command prints)")
	return c
}
