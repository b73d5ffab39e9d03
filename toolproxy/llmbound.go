package toolproxy

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// How many tokens a prompt may have. A token stands for a byte of text at
// least, so the bytes of a prompt bound its tokens; what a model was told
// before is known better, since the answer said how much it was.
const (
	hiddenTokens    = 2_000   // what a vendor puts around a prompt with tools
	hiddenPerItem   = 32      // and around each message
	imageTokens     = 50_000  // of one image, however many or few bytes it has
	referredContext = 200_000 // of content that a prompt only refers to
	// openOutput is what an answer may have when its request does not say.
	openOutput = 32_768
	// leastOutput is what an answer has to have room for: a shorter one would
	// cost its prompt and be of no use.
	leastOutput = 256
)

// asides are members that do not become tokens of the prompt.
var asides = []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "stream", "stream_options",
	"metadata", "temperature", "top_p", "top_k",
	"service_tier", "store", "user", "prompt_cache_key", "safety_identifier", "stop", "stop_sequences", "seed"}

// measured is how long a prompt is at most, and by what its parts are known.
type measured struct {
	sizes []int64    // at most: all but the messages, then each message
	keys  [][32]byte // of the prompt up to there
	twice bool       // it is read twice
	hour  bool       // a part of it is to be kept in the cache for an hour
}

// measure walks a prompt part by part.
func (q *prompt) measure(d *dialect) measured {
	var m measured
	sum := sha256.New()
	add := func(size int64) {
		m.sizes = append(m.sizes, size)
		m.keys = append(m.keys, [32]byte(sum.Sum(nil)))
	}
	base := slices.Clone(q.members)
	slices.SortFunc(base, func(a, b member) int { return strings.Compare(a.name, b.name) })
	w := walker{to: sum}
	size := int64(hiddenTokens)
	for _, part := range base {
		if part.name == d.list || slices.Contains(asides, part.name) {
			continue
		}
		w.word('m', part.name)
		size += w.walk(part.value)
		if part.name == "cache_control" {
			w.mark(part.value)
		}
	}
	add(size)
	for _, part := range q.members {
		if part.name != d.list {
			continue
		}
		for _, item := range itemsOf(part.value) {
			w.word('i', "")
			add(w.walk(item) + pictures(item) + hiddenPerItem)
		}
	}
	q.refers, m.twice, m.hour = q.refers || w.refers, q.shortens, w.hour
	return m
}

// itemsOf are the messages of a prompt; a text alone is one.
func itemsOf(v jsontext.Value) (items []jsontext.Value) {
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '[' {
		return []jsontext.Value{v}
	}
	for dec.PeekKind() != ']' {
		item, err := dec.ReadValue()
		if err != nil {
			break
		}
		items = append(items, item.Clone())
	}
	return items
}

// walker hashes JSON by its meaning, without marks for a cache, and measures
// it.
type walker struct {
	to interface {
		Write(p []byte) (int, error)
	}
	refers bool
	hour   bool // something is to be kept in the cache for an hour
}

// maxMark is how long a mark for the cache is at most, in bytes; what is longer
// is content.
const maxMark = 128

// mark takes a mark for the cache, which is no part of what a prompt means.
func (w *walker) mark(v jsontext.Value) {
	var kept struct {
		For string `json:"ttl"`
	}
	err := json.Unmarshal(v, &kept)
	w.hour = w.hour || err != nil || kept.For != "" && kept.For != "5m"
	if len(v) > maxMark {
		w.word('c', string(v))
	}
}

func (w *walker) word(kind byte, text string) {
	// With its length, no text can pass for several.
	w.to.Write(binary.BigEndian.AppendUint64([]byte{kind}, uint64(len(text))))
	w.to.Write([]byte(text))
}

// walk answers how many tokens a value has at most.
func (w *walker) walk(v jsontext.Value) int64 {
	size := int64(len(v))
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	name := "" // of the member whose value comes next
	for {
		depthKind, n := dec.StackIndex(dec.StackDepth())
		isName := depthKind == '{' && n%2 == 0
		t, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return size
		}
		if err != nil {
			w.word('e', string(v)) // what cannot be read is known by its bytes
			return size
		}
		text := ""
		if t.Kind() == '"' {
			text = t.String()
		}
		switch {
		case isName && text == "cache_control":
			if v, err := dec.ReadValue(); err == nil { // an error comes again
				w.mark(v)
			}
			continue
		case isName:
			name = text
			w.refers = w.refers || name == "file_id" || name == "file_url"
		case t.Kind() == '"':
			w.refers = w.refers || isReference(name, text)
		}
		if t.Kind() == '"' {
			w.word('s', text)
		} else {
			w.word(byte(t.Kind()), t.String())
		}
	}
}

// isReference knows content that the vendor fetches, or makes, by itself.
func isReference(name, text string) bool {
	switch name {
	case "type":
		return text == "url" || strings.HasPrefix(text, "web_search") || strings.HasPrefix(text, "web_fetch") ||
			strings.HasPrefix(text, "code_execution") ||
			text == "file_search" || text == "code_interpreter" || text == "mcp" || text == "image_generation"
	case "media_type", "file_data": // what is packed has more tokens than bytes
		return strings.Contains(text[:min(len(text), 64)], "application/pdf")
	case "image_url":
		return strings.HasPrefix(text, "http")
	}
	return false
}

// prompts remembers how many tokens the beginnings of prompts had: agents say
// everything again with each call. The zero value is ready.
type prompts struct {
	mu    sync.Mutex
	known map[[32]byte]*list.Element
	used  list.List // of knownPrompt, the latest first
}

type knownPrompt struct {
	key    [32]byte
	tokens int64
}

const maxKnownPrompts = 4096

// bound is the most tokens that are read of a prompt.
func (p *prompts) bound(m measured) int64 {
	if m.twice {
		return 2 * p.once(m)
	}
	return p.once(m)
}

// once is the most tokens that a prompt has, by what is known of its longest
// beginning that was sent before.
func (p *prompts) once(m measured) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest, best := int64(0), int64(0)
	for _, size := range m.sizes {
		best += size
	}
	for i := len(m.keys) - 1; i >= 0; i-- {
		if e := p.known[m.keys[i]]; e != nil {
			p.used.MoveToFront(e)
			return min(best, e.Value.(knownPrompt).tokens+rest+hiddenPerItem)
		}
		rest += m.sizes[i]
	}
	return best
}

// learn takes what an answer said of its prompt.
func (p *prompts) learn(m measured, tokens int64) {
	if len(m.keys) == 0 || tokens <= 0 {
		return
	}
	key := m.keys[len(m.keys)-1]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[[32]byte]*list.Element{}
	}
	if e := p.known[key]; e != nil {
		e.Value = knownPrompt{key, max(tokens, e.Value.(knownPrompt).tokens)}
		p.used.MoveToFront(e)
		return
	}
	p.known[key] = p.used.PushFront(knownPrompt{key, tokens})
	if p.used.Len() > maxKnownPrompts {
		oldest := p.used.Back()
		p.used.Remove(oldest)
		delete(p.known, oldest.Value.(knownPrompt).key)
	}
}

// together is the output of so many answers of that length, at most what can
// be counted.
func together(each, copies int64) int64 {
	if each > 0 && copies > budget.MaxTokens/each {
		return budget.MaxTokens
	}
	return each * copies
}

// bounded is what a call costs at most with an answer of so many tokens, and
// with a fee beside them.
func bounded(price budget.TokenPrice, input, output int64, fee budget.Money) budget.Envelope {
	tokens := budget.Tokens{Input: input, Output: output}
	return budget.Envelope{Tokens: tokens.Total(), USD: price.Cost(tokens).Plus(fee)}
}

// affordable is the longest answer, of at most so many tokens, that an envelope
// has room for; 0 when there is none. Each of the copies is that long.
func affordable(price budget.TokenPrice, input, output, copies int64, fee budget.Money, have budget.Envelope) int64 {
	low, high := int64(0), output
	for low < high {
		mid := low + (high-low+1)/2
		if have.Covers(bounded(price, input, together(mid, copies), fee)) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// unpricedModel refuses a model nobody has put a price on.
func unpricedModel(model string) error {
	return picket.Refuse(picket.CodeUnpricedTool,
		"Use another model, or ask an operator for a price: tools.models."+clip(model)+" in picket.yaml.",
		"nobody has said what the model %s costs", clip(model)).With("model", clip(model))
}
