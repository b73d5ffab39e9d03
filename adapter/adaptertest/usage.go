package adaptertest

import (
	"net/http"

	"github.com/picket-dev/picket"
)

// usage takes what an agent has used. It charges nothing.
func usage(_ *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	in, err := decode[picket.UsageReport](body)
	if err != nil {
		return nil, err
	}
	if in.Source == "" || in.Tokens < 0 || in.USD < 0 {
		return nil, picket.Invalid("", "Send source, tokens and usd of at least 0.",
			"the report of usage is not complete")
	}
	l.run.Usage = append(l.run.Usage, in)
	return picket.Usage{Overrun: l.task.script.Overrun}, nil
}
