package console

import "net/http"

func overviewPages() []route {
	return []route{
		{name: "overview", method: get, path: home, scopes: people, as: []string{"GET /api/v1/stats"}, handle: overview, nav: "Overview"},
	}
}

func overview(v *visit) error {
	return v.show(http.StatusOK, page{name: "overview", title: "Overview", topics: []string{"task.", "lease.", "handoff.", "agent.", "budget.", "namespace.", "write."}})
}
