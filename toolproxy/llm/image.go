package llm

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// imageTokens is how many tokens an image has at most, however many or few bytes it has.
const imageTokens = 50_000

// contentPart is a piece of a message, as far as it may be a picture. What only looks
// like one, such as a text that begins as a picture does, or the arguments of a
// tool, is read word by word.
type contentPart struct {
	Type   string `json:"type"`
	Source struct {
		Type string         `json:"type"`
		Data jsontext.Value `json:"data"`
	} `json:"source"`
	Image   jsontext.Value `json:"image_url"`
	Content jsontext.Value `json:"content"` // of a tool's result
}

// imageSurplus is what the pictures in a message have in tokens above their bytes;
// less than nothing where they have fewer. The bytes alone say nothing: a large
// picture of one colour has few.
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

// imageData is the picture that a part is; nil when it is none that came with it.
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
