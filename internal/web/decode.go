package web

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// MaxDepth bounds the nesting of a JSON body. The store's own decoder gives up
// at 1,000, so what is accepted here is far below it.
const MaxDepth = 128

// Decode reads a JSON object of at most limit bytes into a T, strictly: a
// Content-Type other than application/json is 415, a body over limit 413;
// unknown and duplicate members, names in the wrong case, invalid UTF-8,
// nesting deeper than [MaxDepth] and anything after the object are 400, with
// the member's JSON pointer in the fact "field". So is an empty string for an
// optional id of the body. An empty body is {}. The raw
// bytes are returned too, for what must be compared byte for byte.
func Decode[T any](c echo.Context, limit int64) (T, []byte, error) {
	var v T
	raw, err := ReadBody(c, limit, echo.MIMEApplicationJSON)
	if err != nil {
		return v, nil, err
	}
	if len(bytes.TrimLeft(raw, " \t\r\n")) == 0 {
		return v, raw, nil
	}
	err = Unmarshal(raw, &v)
	return v, raw, err
}

// Unmarshal is the strict decoder behind [Decode], for JSON that does not come
// as a whole body. The error is a *picket.Error.
func Unmarshal(raw []byte, into any) error {
	if Depth(raw) > MaxDepth {
		return picket.Invalid("", "Send flatter JSON; a deep structure fits into a string.",
			"the JSON is nested deeper than %d levels", MaxDepth)
	}
	if b := bytes.TrimLeft(raw, " \t\r\n"); len(b) > 0 && b[0] != '{' {
		return picket.Invalid("", `Send a JSON object such as {"name":"value"}.`, "the body is not a JSON object")
	}
	if err := json.Unmarshal(raw, into, json.RejectUnknownMembers(true)); err != nil {
		return decodeRefusal(err)
	}
	if body, ok := into.(optionalIDs); ok {
		return checkOptionalIDs(raw, body.OptionalIDs())
	}
	return nil
}

// ReadBody reads a body of at most limit bytes. A body that is not empty must
// have the given content type (415 otherwise) and no Content-Encoding.
func ReadBody(c echo.Context, limit int64, contentType string) ([]byte, error) {
	r := c.Request()
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if enc := r.Header.Get(echo.HeaderContentEncoding); enc != "" && enc != "identity" {
		return nil, picket.Refuse(picket.CodeUnsupportedMedia, "Send the body uncompressed.",
			"Content-Encoding %.64q is not accepted", enc)
	}
	raw, err := readUpTo(r.Body, limit)
	switch {
	case errors.Is(err, errNoBodyMemory):
		return nil, bodyMemoryRefusal(err)
	case err != nil:
		return nil, picket.Invalid("", "Send the whole body, in time.", "the body could not be read to its end").
			WithCause(err)
	case int64(len(raw)) > limit:
		return nil, tooLarge(limit)
	}
	if got := r.Header.Get(echo.HeaderContentType); len(raw) > 0 && !isType(got, contentType) {
		return nil, unsupported(got, contentType)
	}
	return raw, nil
}

func isType(header, want string) bool {
	got, params, err := mime.ParseMediaType(header)
	if err != nil || got != want {
		return false
	}
	charset := strings.ToLower(params["charset"])
	return charset == "" || charset == "utf-8"
}

func unsupported(got string, want ...string) *picket.Error {
	expect := echo.MIMEApplicationJSON
	if len(want) > 0 {
		expect = want[0]
	}
	return picket.Refuse(picket.CodeUnsupportedMedia, "Send Content-Type: "+expect+".",
		"Content-Type %.128q is not accepted here", got)
}

func tooLarge(limit int64) *picket.Error {
	if limit == 0 {
		return picket.Refuse(picket.CodeTooLarge, "Send less.", "the body is too large")
	}
	return picket.Refuse(picket.CodeTooLarge, "Send less: keep large things in files and name them.",
		"the body is over %d bytes", limit).With("limit", limit)
}

// Depth is how deep the brackets of raw nest, strings left out. It does not
// care whether raw is valid JSON.
func Depth(raw []byte) int {
	deepest, level, inString := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			level++
			deepest = max(deepest, level)
		case b == '}' || b == ']':
			level--
		}
	}
	return deepest
}
