package a2a

import (
	"context"
	stdjson "encoding/json"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// PushContentType is the media type of push notifications.
const PushContentType = protocolJSON

// checkPushOffered refuses push notifications where the server has them off, and to a peer, whose run ends before its
// subtask.
func (x *exchange) checkPushOffered() error {
	if x.server.cfg.CheckPush == nil || x.isPeer() {
		return protocol.ErrPushNotificationNotSupported
	}
	return nil
}

// pushConfig is a configuration of the protocol as the engine takes it. Its address is checked.
func (x *exchange) pushConfig(ctx context.Context, c *protocol.PushConfig) (*picket.PushConfig, error) {
	if c == nil {
		return nil, nil
	}
	if err := x.checkPushOffered(); err != nil {
		return nil, err
	}
	out := &picket.PushConfig{ID: c.ID, URL: picket.Secret(c.URL), Token: picket.Secret(c.Token)}
	if c.Auth != nil {
		out.Scheme, out.Credentials = c.Auth.Scheme, picket.Secret(c.Auth.Credentials)
		if out.Scheme == "" {
			return nil, picket.Invalid("/authentication/scheme",
				"Send the name of an HTTP authentication scheme, such as Bearer.", "scheme is required")
		}
	}
	if err := out.Normalize(); err != nil {
		return nil, err
	}
	return out, x.server.cfg.CheckPush(ctx, out.URL)
}

// putPush sets a push configuration of a task, nil: none.
func (x *exchange) putPush(ctx context.Context, taskID string, c *picket.PushConfig) (picket.PushConfig, error) {
	if c == nil {
		return picket.PushConfig{}, nil
	}
	c.TaskID = taskID
	return x.engine.PutPushConfig(ctx, x.caller(), *c)
}

// createPush creates or replaces a push configuration of a task.
func (x *exchange) createPush(ctx context.Context, req *protocol.PushConfig) (*protocol.PushConfig, error) {
	c, err := x.pushConfig(ctx, req)
	if err != nil {
		return nil, err
	}
	t, err := x.task(ctx, string(req.TaskID))
	if err != nil {
		return nil, err
	}
	made, err := x.putPush(ctx, t.TaskID, c)
	if err != nil {
		return nil, err
	}
	return pushView(made), nil
}

// pushView is a configuration as clients see it: without its token and credentials, which are secrets.
func pushView(c picket.PushConfig) *protocol.PushConfig {
	view := &protocol.PushConfig{TaskID: protocol.TaskID(c.TaskID), ID: c.ID, URL: c.URL.Reveal()}
	if c.Scheme != "" {
		view.Auth = &protocol.PushAuthInfo{Scheme: c.Scheme}
	}
	return view
}

// pushTask finds the task whose push configurations a request is about.
func (x *exchange) pushTask(ctx context.Context, id protocol.TaskID) (picket.Task, error) {
	if err := x.checkPushOffered(); err != nil {
		return picket.Task{}, err
	}
	return x.task(ctx, string(id))
}

// getPush shows a push configuration.
func (x *exchange) getPush(ctx context.Context, req *protocol.GetTaskPushConfigRequest) (*protocol.PushConfig, error) {
	t, err := x.pushTask(ctx, req.TaskID)
	if err != nil {
		return nil, err
	}
	c, err := x.engine.PushConfig(ctx, x.caller(), t.TaskID, req.ID)
	if err != nil {
		return nil, err
	}
	return pushView(c), nil
}

// pushList is the answer to a list of push configurations. They fit on one page.
type pushList struct {
	Configs       []*protocol.PushConfig `json:"configs"`
	NextPageToken string                 `json:"nextPageToken"`
}

// listPushes lists the push configurations of a task.
func (x *exchange) listPushes(ctx context.Context, req *protocol.ListTaskPushConfigRequest) (*pushList, error) {
	t, err := x.pushTask(ctx, req.TaskID)
	if err != nil {
		return nil, err
	}
	list, err := x.engine.PushConfigs(ctx, x.caller(), t.TaskID)
	if err != nil {
		return nil, err
	}
	answer := &pushList{Configs: []*protocol.PushConfig{}}
	for _, c := range list {
		answer.Configs = append(answer.Configs, pushView(c))
	}
	return answer, nil
}

// deletePush deletes a push configuration. One that does not exist is deleted already.
func (x *exchange) deletePush(ctx context.Context, req *protocol.DeleteTaskPushConfigRequest) (any, error) {
	t, err := x.pushTask(ctx, req.TaskID)
	if err != nil {
		return nil, err
	}
	return struct{}{}, x.engine.DeletePushConfig(ctx, x.caller(), t.TaskID, req.ID)
}

// submitWithPush makes a task of a message, with its push configuration in the same step. A message that is sent again
// makes no task, and sets its configuration again.
func (x *exchange) submitWithPush(ctx context.Context, pool *Pool, m *protocol.Message, s submission) (picket.Task,
	error) {
	t, err := x.submitAs(ctx, pool, m, s)
	if wasMadeNow := t.AsOf == 0; err != nil || wasMadeNow || t.State.Terminal() {
		return t, err
	}
	_, err = x.putPush(ctx, t.TaskID, s.push)
	return t, err
}

// restPushCall finds what a request asks for about the push configurations of a task: of all, or of the one that id
// names.
func (x *exchange) restPushCall(method, taskID, id string) (restCall, error) {
	task := protocol.TaskID(taskID)
	switch {
	case method == "POST" && id == "":
		return x.restBody(func(ctx context.Context, raw []byte) (any, error) {
			return calls(func(x *exchange, ctx context.Context, c *protocol.PushConfig) (*protocol.PushConfig, error) {
				c.TaskID = task
				return x.createPush(ctx, c)
			})(ctx, x, raw)
		})
	case method == "GET" && id == "":
		return restCall{answer: func(ctx context.Context) (any, error) {
			return x.listPushes(ctx, &protocol.ListTaskPushConfigRequest{TaskID: task})
		}}, nil
	case method == "GET":
		return restCall{answer: func(ctx context.Context) (any, error) {
			return x.getPush(ctx, &protocol.GetTaskPushConfigRequest{TaskID: task, ID: id})
		}}, nil
	case method == "DELETE" && id != "":
		return restCall{answer: func(ctx context.Context) (any, error) {
			return x.deletePush(ctx, &protocol.DeleteTaskPushConfigRequest{TaskID: task, ID: id})
		}}, nil
	}
	return restCall{}, noSuchPath(method, "tasks/"+strings.Join([]string{taskID, pushPath, id}, "/"))
}

// pushPath is below the path of a task.
const pushPath = "pushNotificationConfigs"

// PushBody is the body of the push notification of an update, or nil if the client is not told about it.
func PushBody(t picket.Task, u picket.TaskUpdate) ([]byte, error) {
	ev := pushEvent(t, u)
	if ev == nil {
		return nil, nil
	}
	return stdjson.Marshal(protocol.StreamResponse{Event: ev})
}

// pushEvent is an update as a stream of the task tells it. t is the task after the update, and can have changed since.
func pushEvent(t picket.Task, u picket.TaskUpdate) protocol.Event {
	id, contextID := protocol.TaskID(t.TaskID), contextOf(t)
	switch {
	case u.Emission > 0:
		if u.Emission > int64(len(t.Emitted)) { // only a damaged store has lost one
			return nil
		}
		return emissionEvent(t, t.Emitted[u.Emission-1])
	case u.Result:
		result := resultOf(t)
		if result == nil {
			return nil
		}
		return &protocol.TaskArtifactUpdateEvent{TaskID: id, ContextID: contextID, Artifact: result, LastChunk: true}
	}
	before, after := t, t
	before.State, before.Handoff, after.Emitted = u.From, u.Handoff, nil
	if t.State != u.To || t.UpdatedAt != u.At { // it has gone on since
		after.State, after.Handoff, after.UpdatedAt = u.To, u.Handoff, u.At
		after.CurrentRun = nil
	}
	if stateOf(before) == stateOf(after) {
		return nil
	}
	view := viewOf(after)
	ev := &protocol.TaskStatusUpdateEvent{TaskID: id, ContextID: contextID, Status: view.Status}
	if t.UpdatedAt == u.At {
		ev.Metadata = view.Metadata
	}
	return ev
}
