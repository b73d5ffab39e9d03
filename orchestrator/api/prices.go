package api

import (
	"net/http"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

// noPrices is the list of an installation without one.
var noPrices, _ = budget.NewPriceList(map[string]budget.Price{}, map[string]budget.TokenPrice{})

// listPrices answers the list this process goes by now.
func (a *API) listPrices(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	return web.JSON(r.Context, http.StatusOK, a.cfg.Prices())
}
