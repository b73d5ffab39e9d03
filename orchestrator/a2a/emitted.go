package a2a

import (
	"bytes"
	stdjson "encoding/json"
	"strconv"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// resultPrefix begins the id of the artifact that is the result of a task. The rest is that of the task.
const resultPrefix = "artifact_"

// emittedArtifacts joins what agents have emitted. An artifact stands where it was emitted first.
func emittedArtifacts(emitted []picket.Emission) (list []*protocol.Artifact) {
	place := map[string]int{}
	for _, e := range emitted {
		c := e.Artifact
		if c == nil {
			continue
		}
		i, known := place[c.ArtifactID]
		switch {
		case !known:
			place[c.ArtifactID] = len(list)
			list = append(list, artifactOf(c))
		case c.Append:
			list[i].Parts = append(list[i].Parts, protocolParts(c.Parts)...)
		default:
			list[i] = artifactOf(c)
		}
	}
	return list
}

func artifactOf(c *picket.ArtifactChunk) *protocol.Artifact {
	return &protocol.Artifact{
		ID:          protocol.ArtifactID(c.ArtifactID),
		Name:        c.Name,
		Description: c.Description,
		Parts:       protocolParts(c.Parts),
	}
}

func protocolParts(parts []picket.Part) protocol.ContentParts {
	list := make(protocol.ContentParts, len(parts))
	for i, p := range parts {
		part := &protocol.Part{Filename: p.Filename, MediaType: p.MediaType}
		switch {
		case p.Text != nil:
			part.Content = protocol.Text(*p.Text)
		case p.Raw != nil:
			part.Content = protocol.Raw(p.Raw)
		case p.URL != "":
			part.Content = protocol.URL(p.URL)
		default:
			part.Content = protocol.Data{Value: exactValue(p.Data)}
		}
		for name, value := range p.Metadata {
			part.SetMeta(name, exactValue(value))
		}
		list[i] = part
	}
	return list
}

// exactValue decodes JSON whose numbers keep their digits. It is nil for JSON that is not valid.
func exactValue(raw picket.RawJSON) (value any) {
	decoder := stdjson.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// statusMessage is a status message that the agent has emitted.
func statusMessage(t picket.Task, e picket.Emission) *protocol.Message {
	return agentMessage(t, t.TaskID+"-status-"+strconv.FormatInt(e.Seq, 10),
		protocol.ContentParts{protocol.NewTextPart(e.Status.Message)})
}

// emissionEvent is the event of a stream that tells an emission.
func emissionEvent(t picket.Task, e picket.Emission) protocol.Event {
	id, contextID := protocol.TaskID(t.TaskID), contextOf(t)
	if e.Status != nil {
		at := e.At.Time()
		return &protocol.TaskStatusUpdateEvent{TaskID: id, ContextID: contextID, Status: protocol.TaskStatus{
			State: protocol.TaskStateWorking, Timestamp: &at, Message: statusMessage(t, e)}}
	}
	return &protocol.TaskArtifactUpdateEvent{TaskID: id, ContextID: contextID, Artifact: artifactOf(e.Artifact),
		Append: e.Artifact.Append, LastChunk: e.Artifact.Last}
}

// lastStatus is the status message that the run which works now has emitted last, or nil.
func lastStatus(t picket.Task) *picket.Emission {
	for i := len(t.Emitted) - 1; i >= 0 && t.CurrentRun != nil; i-- {
		if e := &t.Emitted[i]; e.Status != nil && e.RunID == t.CurrentRun.RunID {
			return e
		}
	}
	return nil
}
