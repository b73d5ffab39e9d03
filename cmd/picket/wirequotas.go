package main

import (
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/orchestrator"
)

// quotasOf is what agents may keep in the store.
func quotasOf(s settings.Settings) orchestrator.Quotas {
	return orchestrator.Quotas{
		Agents:        s.Number("quota.agents"),
		MetadataBytes: s.Number("quota.metadata_bytes"),
		Subtasks:      s.Number("quota.subtasks"),
		Calls:         s.Number("quota.calls"),
		OpenCalls:     s.Number("quota.open_calls"),
		Answers:       s.Number("quota.answers"),
		AnswerBytes:   s.Number("quota.answer_bytes"),
		ReportBytes:   s.Number("quota.report_bytes"),
		Runs:          s.Number("quota.runs"),
	}
}
