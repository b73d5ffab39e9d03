package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/picket-dev/picket/internal/rig"
)

// The doctor judges the fence marks of a real database.
func TestTheDoctorJudgesTheFenceOfADatabase(t *testing.T) {
	pg := rig.StartPostgres(t)
	params := scriptParams(t)
	params.Dir = "testdata/postgres"
	setup := params.Setup
	params.Setup = func(env *testscript.Env) error {
		env.Setenv("OWNER", pg.URL)
		env.Setenv("AGENTS_DSN", pg.As("agents"))
		env.Setenv("AWAY_DSN", "host="+pg.Dir+"/none user=agents dbname=postgres")
		return setup(env)
	}
	testscript.Run(t, params)
}
