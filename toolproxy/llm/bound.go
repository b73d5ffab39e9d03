package llm

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
	"github.com/picket-dev/picket/internal/web"
)

// How many tokens a prompt may have. A token stands for at least one byte of text, so
// the bytes of a prompt bound its tokens. The tokens of a prompt that was sent before
// are known from its answer.
const (
	requestOverhead       = 2_000   // what a vendor puts around a prompt with tools
	messageOverhead       = 32      // and around each message
	externalContextTokens = 200_000 // of content that a prompt only refers to
	// defaultMaxOutput is what an answer may have when its request does not say.
	defaultMaxOutput = 32_768
	// minUsefulOutput is the shortest answer that is worth the cost of its prompt.
	minUsefulOutput = 256
)

// nonPromptMembers are members that do not become tokens of the prompt.
var nonPromptMembers = []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "stream", "stream_options",
	"metadata", "temperature", "top_p", "top_k",
	"service_tier", "store", "user", "prompt_cache_key", "safety_identifier", "stop", "stop_sequences", "seed"}

// promptSize is the upper bound of a prompt's length, with the keys of its parts.
type promptSize struct {
	sizes     []int64    // at most: all but the messages, then each message
	keys      [][32]byte // of the prompt up to there
	readTwice bool       // the vendor reads the prompt twice
	hourCache bool       // a part of it stays in the cache for an hour
}

// measure walks a prompt part by part.
func (q *request) measure(d *dialect) promptSize {
	var m promptSize
	sum := sha256.New()
	add := func(size int64) {
		m.sizes = append(m.sizes, size)
		m.keys = append(m.keys, [32]byte(sum.Sum(nil)))
	}
	base := slices.Clone(q.members)
	slices.SortFunc(base, func(a, b bodyMember) int { return strings.Compare(a.name, b.name) })
	w := promptWalker{to: sum}
	size := int64(requestOverhead)
	for _, part := range base {
		if part.name == d.messagesMember || slices.Contains(nonPromptMembers, part.name) {
			continue
		}
		w.hash('m', part.name)
		size += w.walk(part.value)
		if part.name == "cache_control" {
			w.takeCacheMark(part.value)
		}
	}
	add(size)
	for _, part := range q.members {
		if part.name != d.messagesMember {
			continue
		}
		for _, item := range itemsOf(part.value) {
			w.hash('i', "")
			add(w.walk(item) + imageSurplus(item) + messageOverhead)
		}
	}
	q.usesExternal, m.readTwice, m.hourCache = q.usesExternal || w.usesExternal, q.compacts, w.hourCache
	return m
}

// promptWalker hashes JSON by its meaning, without marks for a cache, and measures
// it.
type promptWalker struct {
	to interface {
		Write(p []byte) (int, error)
	}
	usesExternal bool
	hourCache    bool // something stays in the cache for an hour
}

// maxMark is how long a mark for the cache is at most, in bytes; what is longer
// is content.
const maxMark = 128

// takeCacheMark takes a mark for the cache, which is not part of what a prompt means.
func (w *promptWalker) takeCacheMark(v jsontext.Value) {
	var kept struct {
		For string `json:"ttl"`
	}
	err := json.Unmarshal(v, &kept)
	w.hourCache = w.hourCache || err != nil || kept.For != "" && kept.For != "5m"
	if len(v) > maxMark {
		w.hash('c', string(v))
	}
}

func (w *promptWalker) hash(kind byte, text string) {
	// With its length, no text can pass for several.
	w.to.Write(binary.BigEndian.AppendUint64([]byte{kind}, uint64(len(text))))
	w.to.Write([]byte(text))
}

// walk returns how many tokens a value has at most.
func (w *promptWalker) walk(v jsontext.Value) int64 {
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
			w.hash('e', string(v)) // what cannot be read is known by its bytes
			return size
		}
		text := ""
		if t.Kind() == '"' {
			text = t.String()
		}
		switch {
		case isName && text == "cache_control":
			if v, err := dec.ReadValue(); err == nil { // an error comes again
				w.takeCacheMark(v)
			}
			continue
		case isName:
			name = text
			w.usesExternal = w.usesExternal || name == "file_id" || name == "file_url"
		case t.Kind() == '"':
			w.usesExternal = w.usesExternal || isReference(name, text)
		}
		if t.Kind() == '"' {
			w.hash('s', text)
		} else {
			w.hash(byte(t.Kind()), t.String())
		}
	}
}

// isReference reports whether a member refers to content that the vendor fetches or makes.
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

// knownPrompts remembers how many tokens the beginnings of prompts had, because agents
// repeat the whole conversation with each call. The zero value is ready.
type knownPrompts struct {
	mu    sync.Mutex
	known map[[32]byte]*list.Element
	used  list.List // of knownPrompt, the latest first
}

type knownPrompt struct {
	key    [32]byte
	tokens int64
}

const maxKnownPrompts = 4096

// maxTokensRead is the most tokens that are read of a prompt.
func (p *knownPrompts) maxTokensRead(m promptSize) int64 {
	if m.readTwice {
		return 2 * p.maxTokens(m)
	}
	return p.maxTokens(m)
}

// maxTokens is the most tokens that a prompt has, by what is known of its longest
// beginning that was sent before.
func (p *knownPrompts) maxTokens(m promptSize) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest, best := int64(0), int64(0)
	for _, size := range m.sizes {
		best += size
	}
	for i := len(m.keys) - 1; i >= 0; i-- {
		if e := p.known[m.keys[i]]; e != nil {
			p.used.MoveToFront(e)
			return min(best, e.Value.(knownPrompt).tokens+rest+messageOverhead)
		}
		rest += m.sizes[i]
	}
	return best
}

// learn takes what an answer said of its prompt.
func (p *knownPrompts) learn(m promptSize, tokens int64) {
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

// totalOutput is the output of so many answers of that length, at most what can
// be counted.
func totalOutput(each, copies int64) int64 {
	if each > 0 && copies > budget.MaxTokens/each {
		return budget.MaxTokens
	}
	return each * copies
}

// maxCost is what a call costs at most with an answer of so many tokens, and
// with a fee beside them.
func maxCost(price budget.TokenPrice, input, output int64, fee budget.Money) budget.Envelope {
	tokens := budget.TokenUsage{Input: input, Output: output}
	return budget.Envelope{Tokens: tokens.Total(), USD: price.Cost(tokens).Add(fee)}
}

// longestAffordable is the longest answer, of at most so many tokens, that an envelope
// has room for; 0 when there is none. Each of the copies is that long.
func longestAffordable(price budget.TokenPrice, input, output, copies int64, fee budget.Money,
	have budget.Envelope) int64 {
	low, high := int64(0), output
	for low < high {
		mid := low + (high-low+1)/2
		if have.Covers(maxCost(price, input, totalOutput(mid, copies), fee)) {
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
		"Use another model, or ask an operator for a price: tools.models."+web.Shortened(model)+" in picket.yaml.",
		"nobody has said what the model %s costs", web.Shortened(model)).With("model", web.Shortened(model))
}
