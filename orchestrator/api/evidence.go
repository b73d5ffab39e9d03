package api

import (
	"github.com/picket-dev/picket"
)

type evidenceList struct {
	Evidence []picket.Evidence `json:"evidence"`
}

func taskEvidence(r request) error {
	q, err := r.query("run")
	if err != nil {
		return err
	}
	id, err := r.id("id", "task")
	if err != nil {
		return err
	}
	run, err := q.id("run", "run")
	if err != nil {
		return err
	}
	list, err := r.engine.Evidence(r.ctx(), id, run)
	return r.respond(evidenceList{list}, err)
}
