package adapter

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// Evidence hands in what the run has changed, in place of what was handed in
// before. Like every evidence it never changes the task and is accepted until
// 15 minutes after the lease ended.
func (p *Proxy) Evidence(ctx context.Context, ev picket.Evidence) error {
	return p.post(ctx, "/v1/run/evidence", evidenceBodyOf(ev), nil)
}

// Usage says what the agent's own output tells of its use of models, in figures
// that only grow: the difference to those said before is charged. Like every
// evidence it is accepted until 15 minutes after the lease ended.
func (p *Proxy) Usage(ctx context.Context, u picket.UsageReport) (picket.Usage, error) {
	var out picket.Usage
	err := p.post(ctx, "/v1/run/usage", u, &out)
	return out, err
}

type evidenceBody struct {
	Repository string               `json:"repository"`
	Branch     string               `json:"branch"`
	Base       string               `json:"base"`
	Diffstat   string               `json:"diffstat"`
	Diff       string               `json:"diff"`
	Truncated  bool                 `json:"truncated"`
	Files      []picket.ChangedFile `json:"files"`
}

func evidenceBodyOf(ev picket.Evidence) evidenceBody {
	return evidenceBody{ev.Repository, ev.Branch, ev.Base, ev.Diffstat, ev.Diff, ev.Truncated, ev.Files}
}

// Evidence answers what the runs of a task have changed, the latest run first.
func (c *Client) Evidence(ctx context.Context, taskID string) ([]picket.Evidence, error) {
	var list struct {
		Evidence []picket.Evidence `json:"evidence"`
	}
	err := c.Call(ctx, http.MethodGet, "/api/v1/tasks/"+taskID+"/evidence", nil, &list)
	return list.Evidence, err
}

// redactText makes text of git's that may be sent on: valid, and without the lease
// token.
func redactText(text string, hide picket.Secret) string {
	if hide != "" {
		text = strings.ReplaceAll(text, hide.Reveal(), redactedText)
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
func (k *lockedWorkspace) fitEvidence(ev *picket.Evidence, cut bool) {
	whole := ev.Diff
	for n := len(whole); ; n /= 2 {
		ev.Diff = text.Head(whole, n)
		if cut || n < len(whole) {
			ev.Truncated = true
			ev.Diff = ev.Diff[:strings.LastIndexByte(ev.Diff, '\n')+1] + k.cutNote()
		}
		if b, err := json.Marshal(evidenceBodyOf(*ev)); err == nil && len(b) <= picket.MaxPayload {
			return
		}
		if n == 0 {
			ev.Files, ev.Diffstat = ev.Files[:len(ev.Files)/2], text.Head(ev.Diffstat, len(ev.Diffstat)/2)
			ev.Truncated = true
		}
	}
}

// cutNote ends a diff that was cut.
func (k *lockedWorkspace) cutNote() string {
	return "[picket: the diff is cut here; see all of it with: git diff " + k.Base + " " + k.Branch + "]\n"
}
