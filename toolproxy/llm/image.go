package llm

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// imageTokens is how many tokens an image has at most, however many or few bytes it has.
const imageTokens = 50_000

// contentPart is a part of a message that may be a picture. Text that only looks like a
// picture, such as in the arguments of a tool, counts as text.
type contentPart struct {
	Type   string `json:"type"`
	Source struct {
		Type string         `json:"type"`
		Data jsontext.Value `json:"data"`
	} `json:"source"`
	Image   jsontext.Value `json:"image_url"`
	Content jsontext.Value `json:"content"` // of a tool's result
}

// imageSurplus is how many tokens the pictures in a message have above their bytes, which
// may be negative. The bytes do not bound the tokens: a large picture of one colour has
// few bytes.
func imageSurplus(item jsontext.Value) (more int64) {
	var message struct {
		Content jsontext.Value `json:"content"`
		Output  jsontext.Value `json:"output"` // of a function
	}
	if json.Unmarshal(item, &message) != nil {
		return 0
	}
	return imageSurplusIn(message.Content, true) + imageSurplusIn(message.Output, true)
}

func imageSurplusIn(list jsontext.Value, deeper bool) (more int64) {
	if list.Kind() != '[' {
		return 0
	}
	for _, raw := range itemsOf(list) {
		var p contentPart
		if json.Unmarshal(raw, &p) != nil {
			continue
		}
		switch data := p.imageData(); {
		case data != nil:
			more += imageTokens - int64(len(data))
		case p.Type == "tool_result" && deeper:
			more += imageSurplusIn(p.Content, false)
		}
	}
	return more
}

// imageData is the encoded picture of a part, nil if the part holds none.
func (p contentPart) imageData() jsontext.Value {
	switch p.Type {
	case "image":
		if p.Source.Type == "base64" {
			return p.Source.Data
		}
	case "image_url", "input_image":
		url := p.Image
		if url.Kind() == '{' {
			var in struct {
				URL jsontext.Value `json:"url"`
			}
			if json.Unmarshal(url, &in) != nil {
				return nil
			}
			url = in.URL
		}
		if strings.HasPrefix(string(url), `"data:image/`) {
			return url
		}
	}
	return nil
}
