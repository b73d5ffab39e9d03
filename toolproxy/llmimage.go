package toolproxy

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// part is a piece of a message, as far as it may be a picture. What only looks
// like one, such as a text that begins as a picture does, or the arguments of a
// tool, is read word by word.
type part struct {
	Type   string `json:"type"`
	Source struct {
		Type string         `json:"type"`
		Data jsontext.Value `json:"data"`
	} `json:"source"`
	Image   jsontext.Value `json:"image_url"`
	Content jsontext.Value `json:"content"` // of a tool's result
}

// pictures is what the pictures in a message have in tokens above their bytes;
// less than nothing where they have fewer. The bytes alone say nothing: a large
// picture of one colour has few.
func pictures(item jsontext.Value) (more int64) {
	var message struct {
		Content jsontext.Value `json:"content"`
		Output  jsontext.Value `json:"output"` // of a function
	}
	if json.Unmarshal(item, &message) != nil {
		return 0
	}
	return picturesIn(message.Content, true) + picturesIn(message.Output, true)
}

func picturesIn(list jsontext.Value, deeper bool) (more int64) {
	if list.Kind() != '[' {
		return 0
	}
	for _, raw := range itemsOf(list) {
		var p part
		if json.Unmarshal(raw, &p) != nil {
			continue
		}
		switch data := p.picture(); {
		case data != nil:
			more += imageTokens - int64(len(data))
		case p.Type == "tool_result" && deeper:
			more += picturesIn(p.Content, false)
		}
	}
	return more
}

// picture is the picture that a part is; nil when it is none that came with it.
func (p part) picture() jsontext.Value {
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
