// Package assets has the files that pages of the console load: its stylesheet, its script and its icon.
package assets

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

//go:embed css js icon.svg
var files embed.FS

// Route is the path of the assets, in echo's form.
const Route = "/console/assets/:file"

// Assets are the files a page loads, by the name it asks for them; each has the
// hash of its content in its address, so browsers may keep it for ever.
type Assets struct {
	byName    map[string]string // style.css -> /console/assets/style.1a2b3c4d.css
	byAddress map[string]asset
}

type asset struct {
	content   []byte
	mediaType string
}

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// Load reads the files. What is in css is one stylesheet and what is in js one script, in the order of their names.
func Load() (*Assets, error) {
	a := &Assets{byName: map[string]string{}, byAddress: map[string]asset{}}
	whole := map[string]*bytes.Buffer{}
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(file)
		if err != nil {
			return err
		}
		name := path.Base(file)
		switch path.Dir(file) {
		case "css":
			name = "style.css"
		case "js":
			name = "app.js"
		}
		if whole[name] == nil {
			whole[name] = &bytes.Buffer{}
		}
		whole[name].Write(content)
		return nil
	})
	for name, content := range whole {
		mediaType, known := mediaTypes[path.Ext(name)]
		if !known {
			return nil, fmt.Errorf("console: asset %s has no media type", name)
		}
		sum := sha256.Sum256(content.Bytes())
		ext := path.Ext(name)
		address := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:4]) + ext
		a.byName[name] = "/console/assets/" + address
		a.byAddress[address] = asset{content.Bytes(), mediaType}
	}
	return a, err
}

// Address is the path of an asset, by the name that a page asks for. It is empty if there is none.
func (a *Assets) Address(name string) string { return a.byName[name] }

// Serve answers a request for an asset.
func (a *Assets) Serve(ec echo.Context) error {
	found, ok := a.byAddress[ec.Param("file")]
	if !ok {
		return picket.Refuse(picket.CodeNotFound, "Load the page again.", "there is no such file")
	}
	ec.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	return ec.Blob(http.StatusOK, found.mediaType, found.content)
}
