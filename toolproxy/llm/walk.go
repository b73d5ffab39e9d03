package llm

import (
	"bytes"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// imageTokens is how many tokens a picture has at most. Its bytes do not bound them:
	// a large picture of one colour has few bytes.
	imageTokens  = 50_000
	markOverhead = 8 // bytes around the name and the value of a mark for the cache
)

// promptWalker reads JSON once. It hashes the meaning of a prompt, without marks for the
// cache, and finds what has more tokens than bytes. Names and values count as they are
// decoded, and in upper and lower case alike, because a server may read them so.
type promptWalker struct {
	to           hash.Hash
	pictures     int64
	pictureData  int64 // bytes of pictures whose tokens are bounded by imageTokens alone
	marks        int64 // bytes of the marks for the cache, which are not hashed
	usesExternal bool  // it uses content that is not in it, or cannot be measured
	hourCache    bool  // a part of it stays in the cache for an hour
	inMark       bool  // it walks through a value that is not a mark, although it is named so
}

// place is where a value stands in a prompt.
type place int

const (
	elsewhere  place = iota // such as in the arguments of a tool
	inContent               // where a vendor looks for pictures
	ofMessages              // an item of the list of messages
)

// contentMembers lead from a message to the data of the pictures in it.
var contentMembers = []string{"content", "output", "source", "image_url", "url", "data"}

func (w *promptWalker) hash(kind byte, text string) {
	// With its length, no text can pass for several.
	w.to.Write(binary.BigEndian.AppendUint64([]byte{kind}, uint64(len(text))))
	w.to.Write([]byte(text))
}

// walk returns how many tokens the value of a member has at most.
func (w *promptWalker) walk(name string, v jsontext.Value, at place) int64 {
	pictures, data := w.pictures, w.pictureData
	if _, _, err := w.value(jsontext.NewDecoder(bytes.NewBuffer(v)), fold(name), at); err != nil {
		w.hash('e', string(v)) // what cannot be read is known by its bytes, and none of them is left out
		w.usesExternal, w.pictureData = true, data
	}
	return int64(len(v)) + (w.pictures-pictures)*imageTokens - (w.pictureData - data)
}

// value reads the next value, which belongs to the member of this name. It returns the
// text of a string, and how many bytes of the value are the data of a picture.
func (w *promptWalker) value(dec *jsontext.Decoder, name string, at place) (text string, picture int64, err error) {
	t, err := dec.ReadToken()
	if err != nil {
		return "", 0, err
	}
	switch t.Kind() {
	case '{':
		w.hash('{', "")
		picture, err = w.object(dec, name, at)
	case '[':
		w.hash('[', "")
		for dec.PeekKind() != ']' && err == nil {
			_, _, err = w.value(dec, name, at)
		}
		if err == nil {
			_, err = dec.ReadToken()
		}
		w.hash(']', "")
	case '"':
		text = t.String()
		w.hash('s', text)
		picture = w.text(name, text)
	default:
		w.hash(byte(t.Kind()), t.String())
	}
	return text, picture, err
}

// text notes what a string refers to, and returns the length of the picture that it holds.
func (w *promptWalker) text(name, text string) (picture int64) {
	switch name {
	case "image_url":
		w.pictures++
		if isPicture(text) {
			return int64(len(text))
		}
		w.usesExternal = true
	case "file_data":
		w.usesExternal = w.usesExternal || !strings.HasPrefix(fold(text), "data:text/")
	case "type":
		w.usesExternal = w.usesExternal || isReference(fold(text))
	}
	return 0
}

// object reads the rest of an object. It returns how many bytes of it are the data of a
// picture, if the object around it has to say that it is one.
func (w *promptWalker) object(dec *jsontext.Decoder, parent string, at place) (picture int64, err error) {
	var p part
	before := w.pictures
	for dec.PeekKind() != '}' {
		t, err := dec.ReadToken()
		if err != nil {
			return 0, err
		}
		exact, inside := t.String(), elsewhere
		if at != elsewhere && slices.Contains(contentMembers, exact) {
			inside = inContent
		}
		name := fold(exact)
		switch {
		case name == "cache_control" && !w.inMark:
			if err := w.mark(dec, exact); err != nil {
				return 0, err
			}
			continue
		case name == "url" && parent == "image_url":
			name = parent
		case name == "file_id", name == "file_url", name == "id" && parent == "audio":
			w.usesExternal = true
		}
		w.hash('s', exact)
		text, data, err := w.value(dec, name, inside)
		if err != nil {
			return 0, err
		}
		p.take(name, text)
		if inside != elsewhere {
			picture += data
		}
	}
	w.hash('}', "")
	switch {
	case p.base64 && p.imageData && !p.otherData && isBase64(p.data):
		w.pictures++
		picture += int64(len(p.data))
	case p.base64, p.imageData, p.otherData, p.isStored(at):
		w.usesExternal = true
	}
	if p.media && w.pictures == before {
		w.pictures++
		w.usesExternal = true
	}
	if at == elsewhere {
		picture = 0
	} else if p.media {
		w.pictureData += picture
		picture = 0
	}
	_, err = dec.ReadToken()
	return picture, err
}

// mark reads a member named cache_control. A mark for the cache is not part of what a
// prompt means. Anything else is content.
func (w *promptWalker) mark(dec *jsontext.Decoder, exact string) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if w.isMark(v) {
		w.marks += int64(len(exact)+len(v)) + markOverhead
		return nil
	}
	w.hash('s', exact)
	w.inMark = true // no value is read more than twice
	defer func() { w.inMark = false }()
	_, _, err = w.value(jsontext.NewDecoder(bytes.NewBuffer(v)), "", elsewhere)
	return err
}

// isMark reports whether a value is a mark for the cache, and notes those for an hour.
func (w *promptWalker) isMark(v jsontext.Value) bool {
	var m struct {
		Type  string `json:"type"`
		TTL   string `json:"ttl"`
		Scope string `json:"scope"`
	}
	ok := json.Unmarshal(v, &m, json.RejectUnknownMembers(true)) == nil && (m.Type == "" || m.Type == "ephemeral") &&
		(m.TTL == "" || m.TTL == "5m" || m.TTL == "1h") && (m.Scope == "" || m.Scope == "global")
	w.hourCache = w.hourCache || !ok || m.TTL == "1h"
	return ok
}

// part is what the members of an object say of its kind of content.
type part struct {
	known     bool // it has a type or a role
	media     bool // its type is one of pictures, sound or films
	base64    bool
	imageData bool // its data is said to be a picture
	otherData bool // or something else that is not text
	data      string
	reference bool // an item that the vendor keeps may have what is missing here
	id        bool
	sealed    bool // its content is in it, encrypted
}

func (p *part) take(name, text string) {
	if text == "" {
		return
	}
	switch name {
	case "role":
		p.known = true
	case "type":
		kind := fold(text)
		p.known = true
		p.media = p.media || slices.ContainsFunc(mediaWords,
			func(word string) bool { return strings.Contains(kind, word) })
		p.base64 = p.base64 || kind == "base64"
		p.reference = p.reference || kind == "reasoning"
	case "media_type":
		kind := fold(text)
		p.imageData = p.imageData || strings.HasPrefix(kind, "image/")
		p.otherData = p.otherData || !strings.HasPrefix(kind, "image/") && !strings.HasPrefix(kind, "text/")
	case "data":
		p.data = text
	case "id":
		p.id = true
	case "encrypted_content":
		p.sealed = true
	}
}

// isStored reports whether an object stands for an item that the vendor keeps.
func (p *part) isStored(at place) bool {
	return p.reference && p.id && !p.sealed || at == ofMessages && !p.known
}

// mediaWords stand in the types of parts that are pictures, sound or films.
var mediaWords = []string{"image", "screenshot", "audio", "video"}

// referenceTypes begin the types of content that the vendor fetches, keeps or makes.
var referenceTypes = []string{"item_reference", "web_search", "web_fetch", "code_execution", "code_interpreter",
	"file_search", "mcp"}

func isReference(kind string) bool {
	return kind == "url" || slices.ContainsFunc(referenceTypes,
		func(word string) bool { return strings.HasPrefix(kind, word) })
}

// isPicture reports whether a URL contains a picture.
func isPicture(url string) bool {
	head, data, _ := strings.Cut(url, ",")
	head = fold(head)
	return strings.HasPrefix(head, "data:image/") && strings.HasSuffix(head, ";base64") && isBase64(data)
}

func isBase64(data string) bool {
	for i := range len(data) {
		switch c := data[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("+/=-_\r\n", c) < 0:
			return false
		}
	}
	return data != ""
}

// fold returns one spelling for all that differ in upper and lower case.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }
