package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/picket-dev/picket"
)

// commit puts what is in a worktree onto the branch of its task and answers the
// branch's commit. Done again, or after it was killed at any step, it comes to
// the same. What the agent has committed itself, on whatever branch, stays part
// of it.
func (w *workspaces) commit(ctx context.Context, k *kept, message string) (string, error) {
	if err := errors.Join(k.check(), k.retired()); err != nil {
		return "", err
	}
	g := w.git(k)
	if err := k.relink(); err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	left, err := g.addAll(ctx)
	if err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	if k.left = left; left != "" && w.cfg.Log != nil {
		w.cfg.Log.Warn("not everything can be committed; it is in the workspace", "workspace", k.Path, "err", left)
	}
	w.at("indexed")
	tree, err := g.say(ctx, "write-tree")
	if err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	branch := "refs/heads/" + k.Branch
	head, old := g.commit(ctx, "HEAD"), g.commit(ctx, branch)
	tip := head
	var parents []string
	if was, err := g.say(ctx, "rev-parse", head+"^{tree}"); err != nil || was != tree {
		parents = append(parents, head)
	}
	if old != "" && !g.contains(ctx, head, old) {
		parents = []string{old, head}
	}
	if len(parents) > 0 {
		if tip, err = g.write(ctx, tree, parents, message); err != nil {
			return "", fmt.Errorf("commit work: %w", err)
		}
	}
	w.at("committed")
	if err := errors.Join(k.check(), k.retired()); err != nil {
		return "", err
	}
	if tip != old {
		if _, err := g.say(ctx, "update-ref", "-m", "picket: "+k.RunID, branch, tip,
			cmp.Or(old, strings.Repeat("0", len(tip)))); err != nil {
			return "", fmt.Errorf("commit work: %w", err)
		}
	}
	w.at("referenced")
	if _, err := g.say(ctx, "symbolic-ref", "-m", "picket: "+k.RunID, "HEAD", branch); err != nil {
		return "", fmt.Errorf("commit work: %w", err)
	}
	return tip, nil
}

// addAll notes the state of all files. An index that cannot be read is made
// anew: it holds nothing that the files and HEAD do not. What git cannot take,
// such as a repository without a commit or a file it may not read, is left out
// and told of.
func (g git) addAll(ctx context.Context) (left string, err error) {
	add := func(options ...string) error {
		args := append([]string{"add", "--all"}, options...)
		_, err := g.say(ctx, append(args, "--", ":/", ":(exclude,top,glob)**/"+briefingDir+"/**")...)
		return err
	}
	err = add()
	var e *gitError
	if err == nil || errors.As(err, &e) && e.err != nil {
		return "", err // the command was killed at its limit: a second try would take as long
	}
	if _, unread := g.say(ctx, "ls-files", "--cached", "--", ":(top)"+briefingDir); unread != nil {
		if err := g.removeOfTree("index"); err != nil {
			return "", err
		}
		if _, err := g.say(ctx, "read-tree", "HEAD"); err != nil {
			return "", err
		}
	}
	err = add("--ignore-errors")
	if errors.As(err, &e) && e.err == nil && e.end.Code == 1 {
		return e.Error(), nil
	}
	return "", err
}

// write makes a commit of a tree. The author is the user, or picket where git
// does not know one.
func (g git) write(ctx context.Context, tree string, parents []string, message string) (string, error) {
	args := []string{"commit-tree", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	command := g.command(append(args, "-m", message)...)
	command.env = append(command.env, g.identity(ctx)...)
	return g.spoken(ctx, command)
}

func (g git) identity(ctx context.Context) []string {
	said, _ := g.say(ctx, "config", "--get-regexp", `^(user|author|committer)\.(name|email)$`)
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

// message describes a commit: what a person said of it last, and whose it is.
func (k *kept) message(about string) string {
	subject, rest, _ := strings.Cut(strings.TrimSpace(legible(about)), "\n")
	if subject == "" {
		subject = "Work of " + k.TaskID
	}
	text := clip(subject, 200) + "\n\n"
	if rest = strings.TrimSpace(rest); rest != "" {
		text += clip(rest, 4<<10) + "\n\n"
	}
	if title := strings.TrimSpace(legible(k.Title)); title != "" {
		text += "Task: " + clip(strings.ReplaceAll(title, "\n", " "), 500) + "\n"
	}
	return text + "Picket-Task: " + k.TaskID + "\nPicket-Run: " + k.RunID + "\n"
}

// legible drops what could steer the terminal of who reads the history.
func legible(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Bounds of evidence, before it is written as JSON, in bytes.
const (
	mostDiff     = 160 << 10
	mostDiffstat = 16 << 10
)

// evidence is what the branch of a worktree has that its base has not.
func (w *workspaces) evidence(ctx context.Context, k *kept, tip string, hide picket.Secret) (picket.Evidence, error) {
	g := w.git(k)
	ev := picket.Evidence{RunID: k.RunID, Repository: k.Repository, Branch: k.Branch, Base: k.Base}
	diff := func(n int, options ...string) (string, bool, error) {
		args := append([]string{"diff", "--no-ext-diff", "--no-textconv", "--no-color"}, options...)
		text, more, err := g.some(ctx, n, append(args, k.Base, tip, "--")...)
		return clean(text, hide), more, err
	}
	stat, more, err := diff(mostDiffstat, "--stat=100,80,200")
	if err != nil {
		return ev, fmt.Errorf("show changes: %w", err)
	}
	ev.Diffstat, ev.Truncated = stat, more
	if k.left != "" {
		ev.Diffstat += clean("[picket: not everything could be committed, it is in "+k.Path+": "+k.left+"]\n", hide)
	}
	numbers, more, err := diff(256<<10, "--numstat", "--no-renames", "-z")
	if err != nil {
		return ev, fmt.Errorf("show changes: %w", err)
	}
	ev.Files = changedFiles(numbers)
	ev.Truncated = ev.Truncated || more || strings.Count(numbers, "\x00") > len(ev.Files)
	if ev.Diff, more, err = diff(mostDiff, "--patch"); err != nil {
		return ev, fmt.Errorf("show changes: %w", err)
	}
	k.fit(&ev, more)
	return ev, nil
}
