package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// contentPolicy lets a page load what this server sends and nothing else:
// no inline script or style, no frame, no form that leaves.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secured puts the checks and headers that all of the console shares in front
// of a handler. Its own refusals are pages too.
func (c *Console) secured(next func(*request) error) echo.HandlerFunc {
	return func(ec echo.Context) error {
		h := ec.Response().Header()
		h.Set(echo.HeaderContentSecurityPolicy, contentPolicy)
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		h.Set(echo.HeaderXFrameOptions, "DENY") // for browsers that do not know frame-ancestors
		h.Set(echo.HeaderReferrerPolicy, "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set(echo.HeaderCacheControl, "no-store")
		v := &request{Context: ec, console: c}
		var err error
		if v.site, err = c.siteOf(ec.Request()); err != nil {
			return c.renderError(v, err)
		}
		if v.site.kind == loginSite {
			h.Set(echo.HeaderReferrerPolicy, "no-referrer") // the host name is secret
		}
		if c.origin.Check(ec.Request()) != nil || isCrossOriginEmbed(ec.Request()) {
			return c.renderError(v, picket.Refuse(picket.CodeForbidden,
				"Open the console at its own address and decide there.", "this was sent by another site"))
		}
		return next(v)
	}
}

// isCrossOriginEmbed reports whether a page of another origin loads this into itself. Other
// origins may only link to this page. A server on another port of this host is
// another origin on the same site, and its requests carry our cookies.
func isCrossOriginEmbed(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "" || site == "same-origin" || site == "none" {
		return false
	}
	mode, dest := r.Header.Get("Sec-Fetch-Mode"), r.Header.Get("Sec-Fetch-Dest")
	return mode != "" && mode != "navigate" || dest != "" && dest != "document"
}

// localPath is where a person is sent back to: a path of the console, never an
// address elsewhere.
func localPath(address string) string {
	raw := address
	if at := strings.IndexAny(address, "?#"); at >= 0 {
		raw = address[:at] // what follows leads nowhere
	}
	path, err := url.PathUnescape(raw) // a browser takes %2e for a dot, too
	if err != nil || !strings.HasPrefix(raw, homePath) || strings.Contains(path, "//") ||
		strings.Contains(path, "..") ||
		strings.ContainsAny(address, "\\\r\n\t") || len(address) > 1024 {
		return homePath
	}
	return address
}
