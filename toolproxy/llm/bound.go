package llm

import (
	"container/list"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

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
	marks     int64      // of them that are not part of a key
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
		size += w.walk(part.name, part.value, elsewhere)
		if part.name == "cache_control" {
			w.isMark(part.value)
		}
	}
	add(size)
	for _, part := range q.members {
		if part.name != d.messagesMember {
			continue
		}
		for _, item := range itemsOf(part.value) {
			w.hash('i', "")
			add(w.walk("", item, ofMessages) + messageOverhead)
		}
	}
	q.usesExternal, m.readTwice, m.hourCache = q.usesExternal || w.usesExternal, q.compacts, w.hourCache
	m.marks = w.marks
	return m
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
			return min(best, e.Value.(knownPrompt).tokens+rest+m.marks+messageOverhead)
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
