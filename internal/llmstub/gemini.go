package llmstub

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// geminiPart is a piece of a message.
type geminiPart struct {
	Text             string         `json:"text"`
	FunctionCall     jsontext.Value `json:"functionCall"`
	FunctionResponse *struct {
		Response jsontext.Value `json:"response"`
	} `json:"functionResponse"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

func readGemini(path string, body []byte) (Request, error) {
	var in struct {
		SystemInstruction geminiContent   `json:"systemInstruction"`
		Contents          []geminiContent `json:"contents"`
		Tools             []struct {
			FunctionDeclarations []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	model, verb, _ := strings.Cut(path[strings.LastIndexByte(path, '/')+1:], ":")
	req := Request{
		API:    Gemini,
		Model:  model,
		System: in.SystemInstruction.text(),
		Stream: verb == "streamGenerateContent",
	}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			req.Tools = append(req.Tools, f.Name)
		}
	}
	t := conversation{&req}
	for _, c := range in.Contents {
		result, returned := c.result()
		switch {
		case c.Role == "model":
			t.assistantMessage()
		case returned:
			t.toolMessage(result)
		default:
			t.userMessage(c.text())
		}
	}
	return req, nil
}

func (c geminiContent) text() string {
	var all []string
	for _, p := range c.Parts {
		if p.Text != "" {
			all = append(all, p.Text)
		}
	}
	return strings.Join(all, "\n")
}

func (c geminiContent) result() (text string, found bool) {
	for _, p := range c.Parts {
		if p.FunctionResponse != nil {
			text, found = string(p.FunctionResponse.Response), true
		}
	}
	return text, found
}

func writeGemini(a *responseWriter) {
	part := object{"text": a.turn.Say}
	if a.tool != "" {
		part = object{"functionCall": object{"name": a.tool, "args": jsontext.Value(a.args)}}
	}
	piece := object{
		"candidates": []object{{
			"content":      object{"role": "model", "parts": []object{part}},
			"finishReason": "STOP",
			"index":        0,
		}},
		"usageMetadata": object{
			"promptTokenCount":     a.turn.In,
			"candidatesTokenCount": a.turn.Out,
			"totalTokenCount":      a.turn.In + a.turn.Out,
		},
		"modelVersion": a.req.Model,
		"responseId":   a.id,
	}
	if !a.req.Stream {
		a.writeJSON(piece)
		return
	}
	a.writeEvent("", piece)
}
