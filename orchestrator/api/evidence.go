package api

import (
	"github.com/picket-dev/picket"
)

type evidenceList struct {
	Evidence []picket.Evidence `json:"evidence"`
}

func taskEvidence(r request) error {
	q := r.query("run")
	id, err := r.id("task")
	q.fail(err)
	run := q.id("run", "run")
	if q.err != nil {
		return q.err
	}
	list, err := r.engine.Evidence(r.ctx(), id, run)
	return r.respond(evidenceList{list}, err)
}
