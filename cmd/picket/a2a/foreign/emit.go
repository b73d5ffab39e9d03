package foreign

import (
	"context"
	stdjson "encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/internal/text"
)

// emitter shows what a foreign agent says while it works: its state as a report, and its messages and artifacts as
// emissions. It joins what comes quickly, and drops what does not fit. The result is not read from it.
type emitter struct {
	*work
	mu      sync.Mutex
	status  protocol.TaskStatus
	chunks  []picket.ArtifactChunk // in order
	emitted map[string]int         // bytes of the artifacts that were taken, by id

	// These are of run alone.
	reported string
	said     string
	at       time.Time // of the last report
	full     bool      // the task takes no more emissions
}

const (
	maxChunk     = picket.MaxEmission - 4<<10 // bytes of the parts of an emission, as JSON
	maxWaiting   = 16                         // chunks that wait
	maxArtifacts = 10_000                     // whose size is remembered
	reportEvery  = 10 * time.Second
)

// take takes an event of the foreign task.
func (e *emitter) take(ev protocol.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev := ev.(type) {
	case *protocol.Task:
		e.status = ev.Status
		for _, a := range ev.Artifacts {
			e.artifact(a, false, false)
		}
	case *protocol.TaskStatusUpdateEvent:
		e.status = ev.Status
	case *protocol.TaskArtifactUpdateEvent:
		e.artifact(ev.Artifact, ev.Append, ev.LastChunk)
	}
}

// artifact keeps a piece of an artifact. A whole one that has as many bytes as what was taken is the same again.
func (e *emitter) artifact(a *protocol.Artifact, appended, last bool) {
	if a == nil || a.ID == "" {
		return
	}
	if e.emitted == nil {
		e.emitted = map[string]int{}
	}
	id := artifactID(a.ID)
	parts, size := emittedParts(a.Parts)
	before, known := e.emitted[id]
	fits := len(parts) > 0 && size <= maxChunk && len(e.chunks) < maxWaiting
	if !fits || !known && len(e.emitted) >= maxArtifacts || !appended && before == size || appended && !known {
		return
	}
	if !appended {
		before = 0
		e.chunks = slices.DeleteFunc(e.chunks, func(c picket.ArtifactChunk) bool { return c.ArtifactID == id })
	}
	e.emitted[id] = before + size
	e.chunks = append(e.chunks, picket.ArtifactChunk{
		ArtifactID:  id,
		Name:        printableHead(a.Name, picket.MaxArtifactName),
		Description: printableHead(a.Description, picket.MaxArtifactAbout),
		Parts:       parts,
		Append:      appended,
		Last:        last,
	})
}

// artifactID is the id of a foreign artifact as an emission may have it.
func artifactID(id protocol.ArtifactID) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r >= utf8.RuneSelf-1 {
			return '_'
		}
		return r
	}, string(id))
	return clean[:min(len(clean), picket.MaxArtifactID)]
}

func printableHead(s string, most int) string { return text.ValidHead(text.OneLine(s), most) }

// emittedParts are the parts of an artifact in the form of an emission, and how many bytes they have.
func emittedParts(parts protocol.ContentParts) (list []picket.Part, size int) {
	for _, p := range parts[:min(len(parts), picket.MaxEmittedParts)] {
		if p == nil {
			continue
		}
		kept := protocol.Part{Content: p.Content, Filename: p.Filename, MediaType: p.MediaType}
		raw, err := stdjson.Marshal(kept)
		var one picket.Part
		if err != nil || stdjson.Unmarshal(raw, &one) != nil {
			continue
		}
		list, size = append(list, one), size+len(raw)+1
	}
	return list, size
}

// run emits now and then until ctx ends. What waits then is dropped: the result has it.
func (e *emitter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(e.limits.flush):
			e.flush(ctx)
		}
	}
}

// flush emits what has come since the last time.
func (e *emitter) flush(ctx context.Context) {
	e.mu.Lock()
	status, chunks := e.status, e.chunks
	e.chunks = nil
	e.mu.Unlock()
	said := statusText(status, picket.MaxStatusText)
	summary := "the task is " + agentclient.StateName(status.State)
	if said != "" {
		summary += ": " + agentclient.Excerpt(said)
	}
	if summary != e.reported && time.Since(e.at) >= min(reportEvery, 5*e.limits.flush) {
		e.say(e.job.Stdout, "%s", summary)
		if e.save(ctx, summary, nil) == nil {
			e.reported, e.at = summary, time.Now()
		}
	}
	if said != "" && said != e.said {
		e.said = said
		e.emit(ctx, "emit_status", picket.StatusMessage{Message: said})
	}
	for _, c := range chunks {
		e.emit(ctx, "emit", c)
	}
}

// emit calls a tool for an emission. A refusal costs the emission; if the task takes no more, there are no further
// ones.
func (e *emitter) emit(ctx context.Context, tool string, body any) {
	if e.full || ctx.Err() != nil {
		return
	}
	err := e.proxy.Tool(ctx, tool, body, nil)
	switch {
	case err == nil || ctx.Err() != nil:
	case picket.CodeOf(err) == picket.CodeQuota:
		e.full = true
		e.say(e.job.Stderr, "the task takes no more of what the foreign agent emits: %v", err)
	default:
		e.say(e.job.Stderr, "%s was refused: %v", tool, err)
	}
}
