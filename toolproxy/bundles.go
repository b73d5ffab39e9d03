package toolproxy

import (
	"context"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// bundleKeeper takes the committed branch of a task, from its newest run only.
type bundleKeeper interface {
	// RunBundlePiece stores one piece; kept reports that the task keeps the bundle already.
	RunBundlePiece(ctx context.Context, held picket.LeaseCredential, p picket.BundlePiece) (kept bool, err error)
	// RunBundle makes the pieces the bundle that the task keeps.
	RunBundle(ctx context.Context, held picket.LeaseCredential, b picket.Bundle) error
}

// bundlePieceResponse says whether more pieces are needed.
type bundlePieceResponse struct {
	Kept bool `json:"kept"`
}

// handleBundlePiece takes one piece of a bundle, of which the path names the SHA-256.
func handleBundlePiece(c echo.Context, bundles bundleKeeper, held picket.LeaseCredential) (any, error) {
	p := picket.BundlePiece{SHA256: c.Param("digest")}
	var err error
	if p.Number, err = strconv.Atoi(c.Param("piece")); err != nil {
		return nil, picket.Invalid("piece", "Number the pieces from 0.", "piece is not a number")
	}
	q := c.QueryParams()
	if p.Size, err = queryNumber(q, "size", 0, picket.MaxBundleSize); err != nil {
		return nil, err
	}
	if p.Data, err = web.ReadBody(c, picket.BundlePieceSize, echo.MIMEOctetStream); err != nil {
		return nil, err
	}
	kept, err := bundles.RunBundlePiece(c.Request().Context(), held, p)
	return bundlePieceResponse{kept}, err
}

// bundleRequest names a bundle whose pieces were all sent.
type bundleRequest struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Branch string `json:"branch"`
	Base   string `json:"base"`
	Tip    string `json:"tip"`
}

func handleBundle(c echo.Context, bundles bundleKeeper, held picket.LeaseCredential, body bundleRequest) (any, error) {
	return struct{}{}, bundles.RunBundle(c.Request().Context(), held, picket.Bundle{SHA256: body.SHA256,
		Size: body.Size, Branch: body.Branch, Base: body.Base, Tip: body.Tip})
}
