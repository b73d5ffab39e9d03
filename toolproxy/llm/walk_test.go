package llm_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket/toolproxy/llm"
)

// bodyOf is a request with one message, whose content is the part.
func bodyOf(dialect, part string) string {
	switch dialect {
	case "messages":
		return `{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":[` + part + `]}]}`
	case "chat":
		return `{"model":"gpt-x","max_tokens":300,"messages":[{"role":"user","content":[` + part + `]}]}`
	}
	return `{"model":"gpt-x","max_output_tokens":300,"input":[` + part + `]}`
}

// boundOf is the bound of a prompt that nothing is known of.
func boundOf(t *testing.T, dialect, body string) int64 {
	t.Helper()
	bound, err := llm.Prompts(dialect, 0, body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return bound
}

const (
	px      = "iVBORw0KGgo"
	picture = 50_000  // least of a picture that is in the prompt
	outside = 200_000 // least of what cannot be measured
)

// Whatever a picture, a file or a reference is spelled like, it is reserved as one.
func TestEachSpellingOfContentIsBounded(t *testing.T) {
	imageURL := func(url string) string {
		return `{"type":"image_url","image_url":{"url":"` + url + `","detail":"high"}}`
	}
	inputImage := func(url string) string {
		return `{"role":"user","content":[{"type":"input_image","image_url":"` + url + `"}]}`
	}
	const source = `{"type":"base64","media_type":"image/png","data":"` + px + `"}`
	const image = `{"type":"image","source":` + source + `}`
	document := `{"type":"document","source":{"type":"content","content":[` + image + `]}}`
	file := func(data string) string { return `{"type":"file","file":{"file_data":"` + data + `"}}` }
	for name, c := range map[string]struct {
		dialect string
		part    string
		least   int64
	}{
		"plain":                        {"chat", imageURL("data:image/png;base64," + px), picture},
		"escaped slash":                {"chat", imageURL(`data:image\/png;base64,` + px), picture},
		"escaped letter":               {"chat", imageURL(`\u0064ata:image/png;base64,` + px), picture},
		"DATA":                         {"chat", imageURL("DATA:image/png;base64," + px), picture},
		"IMAGE":                        {"chat", imageURL("data:IMAGE/png;base64," + px), picture},
		"BASE64":                       {"chat", imageURL("data:image/png;BASE64," + px), picture},
		"a parameter":                  {"chat", imageURL("data:image/png;charset=x;base64," + px), picture},
		"leading space":                {"chat", imageURL(" data:image/png;base64," + px), outside},
		"no media type":                {"chat", imageURL("data:;base64," + px), outside},
		"another media type":           {"chat", imageURL("data:application/octet-stream;base64," + px), outside},
		"not base64":                   {"chat", imageURL("data:image/png;base64,a b"), outside},
		"no base64":                    {"chat", imageURL("data:image/png," + px), outside},
		"https":                        {"chat", imageURL("https://a.example/a.png"), outside},
		"HTTPS":                        {"chat", imageURL("HTTPS://a.example/a.png"), outside},
		"gs":                           {"chat", imageURL("gs://a/a.png"), outside},
		"name in capitals":             {"chat", `{"type":"image_url","IMAGE_URL":{"URL":"https://a.example"}}`, outside},
		"name with an escape":          {"chat", `{"type":"image_url","image\u005furl":{"u\u0072l":"https://a.example"}}`, outside},
		"name with a long s":           {"chat", `{"type":"image","\u017fource":{"type":"url"}}`, outside},
		"type in capitals":             {"chat", `{"type":"IMAGE_URL","url":"https://a.example"}`, outside},
		"type with another name":       {"chat", `{"Type":"image_url","x":1}`, outside},
		"two types":                    {"chat", `{"type":"image","Type":"text"}`, outside},
		"a list of URLs":               {"chat", `{"type":"image_url","image_url":["data:image/png;base64,` + px + `"]}`, picture},
		"extra source":                 {"chat", `{"type":"image_url","source":"x","image_url":{"url":"data:image/png;base64,` + px + `"}}`, picture},
		"film":                         {"chat", `{"type":"video_url","video_url":{"url":"https://a.example"}}`, outside},
		"sound":                        {"chat", `{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}`, outside},
		"input_image":                  {"responses", inputImage("data:image/png;base64," + px), picture},
		"input_image, escaped":         {"responses", inputImage(`data:image\/png;base64,` + px), picture},
		"input_image, https":           {"responses", inputImage("https://a.example/a.png"), outside},
		"input_image, file":            {"responses", `{"role":"user","content":[{"type":"input_image","file_id":"f"}]}`, outside},
		"screenshot":                   {"responses", `{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,` + px + `"}}`, picture},
		"screenshot, https":            {"responses", `{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"https://a.example"}}`, outside},
		"picture that the vendor made": {"responses", `{"type":"image_generation_call","id":"ig_1"}`, outside},
		"output of a function":         {"responses", `{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:image/png;base64,` + px + `"}]}`, picture},
		"Anthropic":                    {"messages", image, picture},
		"Anthropic, types in capitals": {"messages",
			strings.NewReplacer("base64", "BASE64", "image/", "IMAGE/").Replace(image), picture},
		"Anthropic, no type":       {"messages", `{"source":` + source + `}`, picture},
		"Anthropic, no media type": {"messages", strings.Replace(image, `"media_type":"image/png",`, "", 1), outside},
		"Anthropic, two media types": {"messages",
			strings.Replace(image, `"data"`, `"Media_Type":"application/pdf","data"`, 1), outside},
		"Anthropic, url":               {"messages", `{"type":"image","source":{"type":"url","url":"https://a.example"}}`, outside},
		"Anthropic, URL":               {"messages", `{"type":"image","source":{"type":"URL","url":"https://a.example"}}`, outside},
		"Anthropic, unreadable source": {"messages", `{"type":"image","source":"x"}`, outside},
		"document":                     {"messages", document, picture},
		"document in a result":         {"messages", `{"type":"tool_result","content":[` + document + `]}`, picture},
		"two results deep":             {"messages", `{"type":"tool_result","content":[{"type":"tool_result","content":[` + image + `]}]}`, picture},
		"in arguments":                 {"messages", `{"type":"tool_use","input":{"a":[{"b":` + image + `}]}}`, picture},
		"in a mark for the cache":      {"messages", `{"type":"text","text":"a","cache_control":` + image + `}`, picture},
		"packed document":              {"messages", `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0"}}`, outside},
		"packed document, capitals":    {"messages", `{"type":"document","source":{"type":"base64","media_type":"Application/PDF","data":"JVBERi0"}}`, outside},
		"file":                         {"chat", file("data:application/pdf;base64,JVBERi0"), outside},
		"file, capitals":               {"chat", file("data:Application/PDF;base64,JVBERi0"), outside},
		"file, escaped":                {"chat", file(`data:application\/pdf;base64,JVBERi0`), outside},
		"file, no MIME type":           {"chat", file("data:;base64,JVBERi0"), outside},
		"file, bare":                   {"chat", file("JVBERi0"), outside},
		"file, long head": {"chat",
			file("data:" + strings.Repeat("a", 64) + "application/pdf;base64,JVBERi0"), outside},
		"file, docx":                    {"chat", file("data:application/vnd.openxmlformats-officedocument.wordprocessingml.document;base64,UEsDB"), outside},
		"file, name in capitals":        {"chat", `{"type":"file","file":{"FILE_DATA":"JVBERi0"}}`, outside},
		"file, id":                      {"chat", `{"type":"file","file":{"File_Id":"f"}}`, outside},
		"item_reference":                {"responses", `{"type":"item_reference","id":"msg_1"}`, outside},
		"item_reference, capitals":      {"responses", `{"type":"ITEM_Reference","id":"msg_1"}`, outside},
		"item with an id alone":         {"responses", `{"id":"msg_1"}`, outside},
		"item of no type":               {"responses", `{"id":"msg_1","type":null}`, outside},
		"reasoning that the vendor has": {"responses", `{"type":"reasoning","id":"rs_1","summary":[]}`, outside},
		"search of the vendor":          {"responses", `{"type":"file_search_call","id":"fs_1"}`, outside},
		"answer in sound":               {"chat", `{"role":"assistant","audio":{"id":"audio_1"}}`, outside},
	} {
		if got := boundOf(t, c.dialect, bodyOf(c.dialect, c.part)); got < c.least {
			t.Errorf("%s: at most %d tokens, want at least %d", name, got, c.least)
		}
	}
}

// What agents send all day is bounded by its bytes, and a picture by what one has at most.
func TestOrdinaryContentIsNotReservedAsMore(t *testing.T) {
	long := strings.Repeat("abcd", 250_000)
	for name, c := range map[string]struct {
		dialect string
		part    string
		most    int64
	}{
		"text":                        {"messages", `{"type":"text","text":"data:image/png;base64,AAAA https://a.example"}`, 3_000},
		"arguments":                   {"messages", `{"type":"tool_use","id":"a","name":"find","input":{"type":"file","id":"7","url":"https://a.example","data":"a b","source":"x"}}`, 3_000},
		"large picture":               {"messages", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + long + `"}}`, 53_000},
		"large picture of a tool":     {"messages", `{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + long + `"}}]}`, 53_000},
		"large picture in a document": {"messages", `{"type":"document","source":{"type":"content","content":[{"source":{"data":"` + long + `","media_type":"image/png","type":"base64"},"type":"image"}]}}`, 53_000},
		"large picture, chat":         {"chat", `{"image_url":{"url":"data:image/png;base64,` + long + `"},"type":"image_url"}`, 53_000},
		"large picture of a function": {"responses", `{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:image/png;base64,` + long + `"}]}`, 53_000},
		"large screenshot":            {"responses", `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,` + long + `"}}`, 53_000},
		"document in plain text":      {"messages", `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a b"}}`, 3_000},
		"file in plain text":          {"chat", `{"type":"file","file":{"file_data":"data:text/plain;base64,AAAA"}}`, 3_000},
		"function call":               {"responses", `{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}`, 3_000},
		"answer":                      {"responses", `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a"}]}`, 3_000},
		"encrypted reasoning":         {"responses", `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}`, 3_000},
		"reasoning in the request":    {"responses", `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"a"}]}`, 3_000},
	} {
		if got := boundOf(t, c.dialect, bodyOf(c.dialect, c.part)); got > c.most {
			t.Errorf("%s: %d tokens are reserved, want at most %d", name, got, c.most)
		}
	}
	schema := `{"model":"claude-x","max_tokens":300,"tools":[{"name":"f","input_schema":{"type":"object","properties":{"image_url":{"type":"string"},"type":{"enum":["image","url"]},"audio":{"type":"string"},"data":{"type":"string"}},"required":["image_url"]}}],"messages":[{"role":"user","content":"hi"}]}`
	if got := boundOf(t, "messages", schema); got > 3_000 {
		t.Errorf("a tool with a picture among its arguments: %d tokens are reserved", got)
	}
}

// Text does not become cheaper because it looks like a picture where a vendor takes none.
func TestTextIsNotBoundedAsAPicture(t *testing.T) {
	long := strings.Repeat("abcd", 250_000)
	source := `{"type":"base64","media_type":"image/png","data":"` + long + `"}`
	for name, part := range map[string]string{
		"arguments":          `{"type":"tool_use","input":{"type":"image","source":` + source + `}}`,
		"deep in a picture":  `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"},"x":{"source":` + source + `}}`,
		"text with a source": `{"type":"text","text":"a","source":` + source + `}`,
		"text with a URL":    `{"type":"text","text":"a","image_url":"data:image/png;base64,` + long + `"}`,
		"source in capitals": `{"type":"image","Source":` + source + `}`,
		"not base64":         `{"type":"image","source":` + strings.Replace(source, "abcd", "ab d", 1) + `}`,
		"text, not a picture": `{"type":"image","source":` +
			strings.Replace(source, "image/png", "text/plain", 1) + `}`,
		"a mark":                  `{"type":"text","text":"a","cache_control":{"type":"image","source":` + source + `}}`,
		"a list where a URL goes": `{"type":"image_url","image_url":["data:image/png;base64,` + long + `"]}`,
	} {
		if got := boundOf(t, "messages", bodyOf("messages", part)); got < 1_000_000 {
			t.Errorf("%s: at most %d tokens in 1,000,000 bytes", name, got)
		}
	}
}

// marked is a conversation that has a value with the name of a mark in many places.
func marked(where, mark string) string {
	many := strings.Repeat(`{"cache_control":`+mark+`},`, 1999) + `{"cache_control":` + mark + `}`
	schema, input, content := `{}`, `{}`, `"ok"`
	switch where {
	case "input_schema":
		schema = `{"x":[` + many + `]}`
	case "input":
		input = `{"x":[` + many + `]}`
	case "content":
		content = `[` + many + `]`
	}
	return `{"model":"claude-x","max_tokens":300,"tools":[{"name":"f","input_schema":` + schema + `}],"messages":[{"role":"user","content":"hi"},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":` + input + `}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":` + content + `}]}]}`
}

// A value with the name of a mark for the cache hides no content: the bound is that of
// its bytes, also after a call in which it was short.
func TestMarksHideNoContent(t *testing.T) {
	chinese := `"` + strings.Repeat("\u6f22", 40) + `"`
	for _, where := range []string{"input_schema", "input", "content"} {
		for name, mark := range map[string]string{
			"text":           chinese,
			"a type":         `{"type":` + chinese + `}`,
			"a ttl":          `{"ttl":` + chinese + `}`,
			"another member": `{"type":"ephemeral","x":` + chinese + `}`,
			"a mark":         `{"type":"ephemeral","ttl":"5m"}`,
			"a mark inside":  `{"cache_control":{"type":"ephemeral"}}`,
			"escapes":        `{"\u0074ype":"\u0065phemeral"}`,
		} {
			for _, short := range []string{"1", "null", "{}", `{"type":"ephemeral"}`} {
				got, err := llm.Prompts("messages", 9_000, marked(where, short), marked(where, mark))
				if least := int64(2000 * len(mark)); err != nil || got < least {
					t.Errorf("%s in %s after %s: at most %d tokens in %d bytes, %v", name, where, short, got, least, err)
				}
			}
		}
	}
}

// A conversation is known by what it says, wherever its marks stand.
func TestMarksDoNotChangeAConversation(t *testing.T) {
	ask := func(system, tool, first, second string) string {
		return `{"model":"claude-x","max_tokens":300,"system":[{"type":"text","text":"` + strings.Repeat("s", 9000) + `"` + system + `}],` +
			`"tools":[{"name":"f","input_schema":{"type":"object"}` + tool + `}],"messages":[` +
			`{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("a", 9000) + `"` + first + `}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"b"` + second + `}]}]}]}`
	}
	const known = 4_000
	for _, mark := range []string{`{"type":"ephemeral"}`, `{"type":"ephemeral","ttl":"5m"}`,
		`{"ttl":"1h","type":"ephemeral"}`,
		`{"type":"ephemeral","scope":"global"}`, `null`} {
		mark = `,"cache_control":` + mark
		for _, second := range []string{ask("", "", "", ""), ask(mark, "", "", mark), ask("", mark, mark, ""),
			ask(mark, mark, mark, mark)} {
			got, err := llm.Prompts("messages", known, ask(mark, mark, mark, ""), second)
			if err != nil || got > known+500 {
				t.Errorf("%s: %d tokens are reserved for a conversation of %d, %v", mark, got, known, err)
			}
		}
	}
}
