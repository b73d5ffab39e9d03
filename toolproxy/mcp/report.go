package mcp

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// PoolsURI is the resource that tells to whom the run can delegate.
const PoolsURI = "picket://pools"

// ReportURI is the resource that holds the pinned progress report.
const ReportURI = "picket://task/report"

// reportPrompt is the prompt that goes on from it.
const reportPrompt = "continue_task"

// addReport offers the pinned report as a resource and as a prompt: an agent
// whose context was compacted finds its way back with either.
func (f *endpoint) addReport(s *mcp.Server) {
	s.AddResource(&mcp.Resource{
		URI: ReportURI, Name: "last_report", Title: "Last progress report", MIMEType: "application/json",
		Description: "What was last reported of your task, by you or by an earlier run. Null when nothing was.",
	}, f.readReport)
	s.AddResource(&mcp.Resource{
		URI: PoolsURI, Name: "pools", Title: "To whom you can delegate", MIMEType: "application/json",
		Description: "The roles that have workers now, what these can do, and how many more tasks they take at once: " +
			"the answer of find_agents.",
	}, f.readPools)
	s.AddPrompt(&mcp.Prompt{
		Name: reportPrompt, Title: "Continue the task",
		Description: "Your task, its last progress report and the answers people gave: all that is needed to go on.",
	}, f.promptReport)
}

func (f *endpoint) readReport(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	task, err := f.heldTask(ctx, r.Extra)
	if err != nil {
		return nil, err
	}
	text, err := toolproxy.EncodeJSON(task.LastReport)
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{
		Contents: []*mcp.ResourceContents{{URI: ReportURI, MIMEType: "application/json", Text: string(text)}},
	}, nil
}

func (f *endpoint) readPools(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	backend, held, err := f.callerOf(r.Extra)
	if err != nil {
		return nil, protocolError(err)
	}
	found, err := backend.FindAgents(ctx, held, rand.Text(), picket.AgentSearch{})
	if err != nil {
		return nil, protocolError(err)
	}
	text, err := toolproxy.EncodeJSON(found)
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{
		Contents: []*mcp.ResourceContents{{URI: PoolsURI, MIMEType: "application/json", Text: string(text)}},
	}, nil
}

func (f *endpoint) promptReport(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	task, err := f.heldTask(ctx, r.Extra)
	if err != nil {
		return nil, err
	}
	report, err := toolproxy.EncodeJSON(task.LastReport)
	if err != nil {
		return nil, err
	}
	answers, err := toolproxy.EncodeJSON(task.Answers)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("You hold the task %s: %s\n\nInput: %s\n\nThe last progress report (JSON; null: none yet):\n%s\n\nAnswers people gave (JSON):\n%s\n\n"+
		"Go on from there. Report with report_progress as you go; hand in the result with mark_complete.", task.TaskID,
		task.Title, task.Input, report, answers)
	return &mcp.GetPromptResult{
		Description: "Continue " + task.TaskID,
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, nil
}
