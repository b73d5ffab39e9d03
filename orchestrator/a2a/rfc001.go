package a2a

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// taskRequest is the body of POST a2a/tasks of RFC-001.
type taskRequest struct {
	// TaskID is an id of the client's own for the task. It and the id in the answer name the same task.
	TaskID      string         `json:"taskId,omitempty"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Metadata    picket.RawJSON `json:"metadata,omitempty"` // an object
}

// taskAnswer answers POST a2a/tasks.
type taskAnswer struct {
	TaskID protocol.TaskID    `json:"taskId"`
	Status protocol.TaskState `json:"status"`
	Task   *protocol.Task     `json:"task"`
}

// healthAnswer answers GET a2a/health.
type healthAnswer struct {
	Status string `json:"status"` // of a pool: active or unhealthy; of an instance: that of the agent
}

// conflictOfID makes the refusal of an id that was used for something else a conflict, which has the status 409.
func conflictOfID(err error) error {
	if !errors.Is(err, picket.CodeIdempotencyConflict) {
		return err
	}
	return picket.Refuse(picket.CodeStateConflict, "Use another id, or send the same content again.",
		"this id was used for other content before").WithCause(err)
}

// submitTask takes a task of RFC-001.
func (x *exchange) submitTask(ctx context.Context) error {
	body, _, err := web.Decode[taskRequest](x.Context, maxBody)
	if err != nil {
		return err
	}
	m, err := body.message()
	if err != nil {
		return err
	}
	pool, err := x.poolFor(ctx, m)
	if err != nil {
		return err
	}
	t, err := x.submitAs(ctx, pool, m, submission{title: body.Title, taskID: body.TaskID})
	if err != nil {
		return err
	}
	view, err := x.withHistory(ctx, t, nil)
	if err != nil {
		return err
	}
	x.Response().Header().Set(echo.HeaderLocation, x.base()+"/a2a/tasks/"+t.TaskID)
	return x.JSON(http.StatusAccepted, taskAnswer{TaskID: view.ID, Status: view.Status.State, Task: view})
}

// message is the message of A2A that says the same. Its id is that of the task, so that a repeated request is one
// task. Without one, each request is a task.
func (r taskRequest) message() (*protocol.Message, error) {
	if r.Title == "" {
		return nil, picket.Invalid("/title", "Say what the agent has to do.", "title is required")
	}
	if len(r.TaskID) > maxClientID {
		return nil, picket.Invalid("/taskId", "Send a shorter id.", "taskId has at most %d bytes", maxClientID)
	}
	said := r.Description
	if said == "" {
		said = r.Title
	}
	m := protocol.NewMessage(protocol.MessageRoleUser, protocol.NewTextPart(said))
	m.ID = cmp.Or(r.TaskID, m.ID)
	if len(r.Metadata) > 0 && stdjson.Unmarshal(r.Metadata, (*exactObject)(&m.Metadata)) != nil {
		return nil, picket.Invalid("/metadata", `Send an object such as {"priority": "high"}.`, "metadata is not an object")
	}
	if m.Metadata[replyKey] == replyMessage {
		return nil, picket.Invalid("/metadata/reply", "Leave it out, or call SendMessage.",
			"a task of this route is not answered with a message")
	}
	return m, nil
}

// health says whether the pool has agents that live. A pool without any takes tasks all the same.
func (x *exchange) health(ctx context.Context) (healthAnswer, error) {
	if x.pool == nil {
		return healthAnswer{Status: "active"}, nil
	}
	pools, err := x.engine.Pools(ctx, x.pool.Role, "")
	if err != nil {
		return healthAnswer{}, err
	}
	for _, p := range pools {
		if p.Members[picket.AgentActive] > 0 {
			return healthAnswer{Status: "active"}, nil
		}
	}
	return healthAnswer{Status: "unhealthy"}, nil
}
