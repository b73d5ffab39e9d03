package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// Commit puts what is in a worktree onto the branch of its task and returns the id of the
// branch's commit. It may be repeated, also after it was killed at any step. Commits of
// the agent stay part of the history, no matter on which branch they are. The error is
// ErrNotUsable, ErrGitTimeout or ErrLeaseEnded if these are the reason; what was not
// committed stays in the directory.
func (w *Store) Commit(ctx context.Context, k *Locked, message string) (string, error) {
	if err := errors.Join(k.verify(), k.checkRetired()); err != nil {
		return "", err
	}
	g := w.git(k)
	if err := k.relink(); err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	left, err := g.stageAll(ctx)
	if err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	if k.uncommitted = left; left != "" {
		w.Log.Warn("not everything can be committed; it is in the workspace", "workspace", k.Path, "err", left)
	}
	w.step("indexed")
	tree, err := g.output(ctx, "write-tree")
	if err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	branch := "refs/heads/" + k.Branch
	head, old := g.resolveCommit(ctx, "HEAD"), g.resolveCommit(ctx, branch)
	tip := head
	var parents []string
	if was, err := g.output(ctx, "rev-parse", head+"^{tree}"); err != nil || was != tree {
		parents = append(parents, head)
	}
	if old != "" && !g.contains(ctx, head, old) {
		parents = []string{old, head}
	}
	if len(parents) > 0 {
		if tip, err = g.commitTree(ctx, tree, parents, message); err != nil {
			return "", fmt.Errorf("commit work: %w", err)
		}
	}
	w.step("committed")
	if err := errors.Join(k.verify(), k.checkRetired()); err != nil {
		return "", err
	}
	if tip != old {
		if _, err := g.output(ctx, "update-ref", "-m", "picket: "+k.RunID, branch, tip,
			cmp.Or(old, strings.Repeat("0", len(tip)))); err != nil {
			return "", fmt.Errorf("commit work: %w", err)
		}
	}
	w.step("referenced")
	if _, err := g.output(ctx, "symbolic-ref", "-m", "picket: "+k.RunID, "HEAD", branch); err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	return tip, nil
}

// stageAll notes the state of all files. An index that cannot be read is replaced: it holds nothing
// that the files and HEAD do not. What git cannot take, such as a repository without a commit or a
// file it may not read, is left out and reported.
func (g git) stageAll(ctx context.Context) (left string, err error) {
	add := func(options ...string) error {
		args := append([]string{"add", "--all"}, options...)
		_, err := g.output(ctx, append(args, "--", ":/", ":(exclude,top,glob)**/"+AgentFilesDir+"/**")...)
		return err
	}
	err = add()
	var e *gitError
	if err == nil || errors.As(err, &e) && e.err != nil {
		return "", err // the command was killed at its limit: a second try would take as long
	}
	if _, unread := g.output(ctx, "ls-files", "--cached", "--", ":(top)"+AgentFilesDir); unread != nil {
		if err := g.removeAdminFile("index"); err != nil {
			return "", err
		}
		if _, err := g.output(ctx, "read-tree", "HEAD"); err != nil {
			return "", err
		}
	}
	err = add("--ignore-errors")
	if errors.As(err, &e) && e.err == nil && e.exit.Code == 1 {
		return e.Error(), nil
	}
	return "", err
}

// commitTree makes a commit of a tree. The author is the user, or picket where git
// does not know one.
func (g git) commitTree(ctx context.Context, tree string, parents []string, message string) (string, error) {
	args := []string{"commit-tree", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	command := g.command(append(args, "-m", message)...)
	command.env = append(command.env, g.identityEnv(ctx)...)
	return g.outputOf(ctx, command)
}

func (g git) identityEnv(ctx context.Context) []string {
	said, _ := g.output(ctx, "config", "--get-regexp", `^(user|author|committer)\.(name|email)$`)
	known := map[string]bool{}
	for line := range strings.Lines(said) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		known[key] = value != ""
	}
	var env []string
	for _, who := range []string{"author", "committer"} {
		for part, otherwise := range map[string]string{"name": "picket", "email": "picket@localhost"} {
			variable := "GIT_" + strings.ToUpper(who+"_"+part)
			given := os.Getenv(variable) != "" || part == "email" && os.Getenv("EMAIL") != ""
			if !given && !known["user."+part] && !known[who+"."+part] {
				env = append(env, variable+"="+otherwise)
			}
		}
	}
	return env
}

// CommitMessage returns the message of a commit. about is untrusted text, such as the
// summary of the last report: its first line becomes the subject, of at most 200 bytes.
// The message ends with the title of the task and the ids of task and run.
func (k *Locked) CommitMessage(about string) string {
	subject, rest, _ := strings.Cut(strings.TrimSpace(text.Printable(about)), "\n")
	if subject == "" {
		subject = "Work of " + k.TaskID
	}
	message := text.Head(subject, 200) + "\n\n"
	if rest = strings.TrimSpace(rest); rest != "" {
		message += text.Head(rest, 4<<10) + "\n\n"
	}
	if title := strings.TrimSpace(text.Printable(k.Title)); title != "" {
		message += "Task: " + text.Head(strings.ReplaceAll(title, "\n", " "), 500) + "\n"
	}
	return message + "Picket-Task: " + k.TaskID + "\nPicket-Run: " + k.RunID + "\n"
}

// RedactedText replaces a secret in a text.
const RedactedText = "[redacted]"

// Bounds of evidence, before it is written as JSON, in bytes.
const (
	maxDiff     = 160 << 10
	maxDiffstat = 16 << 10
)

// Evidence describes what the branch of a worktree has changed since its base: the commit
// tip against Locked.Base. It contains at most 160 KiB of the diff and 16 KiB of its
// statistics; Truncated reports that there was more. hide is the credential that must
// not occur in it.
func (w *Store) Evidence(ctx context.Context, k *Locked, tip string,
	hide picket.Secret) (picket.Evidence, error) {
	g := w.git(k)
	ev := picket.Evidence{RunID: k.RunID, Repository: k.Repository, Branch: k.Branch, Base: k.Base}
	diff := func(n int, options ...string) (string, bool, error) {
		args := append([]string{"diff", "--no-ext-diff", "--no-textconv", "--no-color"}, options...)
		text, more, err := g.outputHead(ctx, n, append(args, k.Base, tip, "--")...)
		return RedactText(text, hide), more, err
	}
	stat, more, err := diff(maxDiffstat, "--stat=100,80,200")
	if err != nil {
		return ev, fmt.Errorf("show changes: %w", err)
	}
	ev.Diffstat, ev.Truncated = stat, more
	if k.uncommitted != "" {
		ev.Diffstat += RedactText("[picket: not everything could be committed, it is in "+k.Path+": "+k.uncommitted+
			"]\n", hide)
	}
	numbers, more, err := diff(256<<10, "--numstat", "--no-renames", "-z")
	if err != nil {
		return ev, fmt.Errorf("show changes: %w", err)
	}
	ev.Files = parseNumstat(numbers)
	ev.Truncated = ev.Truncated || more || strings.Count(numbers, "\x00") > len(ev.Files)
	if ev.Diff, more, err = diff(maxDiff, "--patch"); err != nil {
		return ev, fmt.Errorf("show changes: %w", err)
	}
	k.fitEvidence(&ev, more)
	return ev, nil
}

// EvidenceBody is evidence as it is sent to the tool proxy.
type EvidenceBody struct {
	Repository string               `json:"repository"`
	Branch     string               `json:"branch"`
	Base       string               `json:"base"`
	Diffstat   string               `json:"diffstat"`
	Diff       string               `json:"diff"`
	Truncated  bool                 `json:"truncated"`
	Files      []picket.ChangedFile `json:"files"`
}

// EvidenceBodyOf returns what is sent of evidence.
func EvidenceBodyOf(ev picket.Evidence) EvidenceBody {
	return EvidenceBody{ev.Repository, ev.Branch, ev.Base, ev.Diffstat, ev.Diff, ev.Truncated, ev.Files}
}

// RedactText returns text that may be sent on: valid UTF-8, with RedactedText in place of
// the secret hide.
func RedactText(text string, hide picket.Secret) string {
	if hide != "" {
		text = strings.ReplaceAll(text, hide.Reveal(), RedactedText)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// parseNumstat reads git's numbers: added, removed and name, with "-" for what
// has no lines.
func parseNumstat(numbers string) []picket.ChangedFile {
	var files []picket.ChangedFile
	for row := range strings.SplitSeq(numbers, "\x00") {
		part := strings.SplitN(row, "\t", 3)
		if len(part) < 3 || len(files) == picket.MaxChangedFiles {
			continue
		}
		file := picket.ChangedFile{Path: text.Head(part[2], 4096)}
		if added, err := strconv.Atoi(part[0]); err == nil {
			file.Added = &added
		}
		if removed, err := strconv.Atoi(part[1]); err == nil {
			file.Removed = &removed
		}
		files = append(files, file)
	}
	return files
}

// fitEvidence cuts the diff, and if need be the list of files, until the evidence is
// small enough to be handed in.
func (k *Locked) fitEvidence(ev *picket.Evidence, cut bool) {
	whole := ev.Diff
	for n := len(whole); ; n /= 2 {
		ev.Diff = text.Head(whole, n)
		if cut || n < len(whole) {
			ev.Truncated = true
			ev.Diff = ev.Diff[:strings.LastIndexByte(ev.Diff, '\n')+1] + k.cutNote()
		}
		if b, err := json.Marshal(EvidenceBodyOf(*ev)); err == nil && len(b) <= picket.MaxPayload {
			return
		}
		if n == 0 {
			ev.Files, ev.Diffstat = ev.Files[:len(ev.Files)/2], text.Head(ev.Diffstat, len(ev.Diffstat)/2)
			ev.Truncated = true
		}
	}
}

// cutNote ends a diff that was cut.
func (k *Locked) cutNote() string {
	return "[picket: the diff is cut here; see all of it with: git diff " + k.Base + " " + k.Branch + "]\n"
}
