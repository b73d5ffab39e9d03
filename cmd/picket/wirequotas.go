package main

import "github.com/picket-dev/picket/orchestrator"

// quotas is what agents may keep in the store.
func (s settings) quotas() orchestrator.Quotas {
	return orchestrator.Quotas{
		Agents:        s.number("quota.agents"),
		MetadataBytes: s.number("quota.metadata_bytes"),
		Subtasks:      s.number("quota.subtasks"),
		Calls:         s.number("quota.calls"),
		OpenCalls:     s.number("quota.open_calls"),
		Answers:       s.number("quota.answers"),
		AnswerBytes:   s.number("quota.answer_bytes"),
		ReportBytes:   s.number("quota.report_bytes"),
		Runs:          s.number("quota.runs"),
	}
}
