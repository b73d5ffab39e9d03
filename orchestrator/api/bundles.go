package api

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// taskBundlePiece answers the bytes of one piece of a bundle.
func taskBundlePiece(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	task, err := r.id("task")
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(r.Param("piece"))
	if err != nil || number < 0 || number >= picket.BundlePieces(picket.MaxBundleSize) {
		return picket.Invalid("piece", "Send the number of a piece, from 0 on.", "piece is not the number of a piece")
	}
	data, err := r.engine.BundlePiece(r.ctx(), task, r.Param("digest"), number)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return r.Blob(http.StatusOK, echo.MIMEOctetStream, data)
}
