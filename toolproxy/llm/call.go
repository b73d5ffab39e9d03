package llm

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/sse"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// call is one request of an agent to a vendor, and its answer.
type call struct {
	forwarder *forwarder
	c         echo.Context
	vendor    *vendor
	dialect   *dialect // nil for a call that costs nothing
	endpoint  *endpoint
	backend   toolproxy.Backend
	held      picket.LeaseCredential
	path      string
	body      []byte

	request        *request
	size           promptSize
	price          budget.TokenPrice
	worstPrice     budget.TokenPrice // of the tokens of its prompt, and of the answer's
	fees           toolFees
	buffered       []byte      // an answer that is not a stream, kept until it is paid
	bufferedHeader http.Header // its header
	bufferedStatus int
	invalidStatus  bool // its status cannot be passed on
	clientGone     bool // the agent has gone away
	headerWritten  bool // the first byte was written
}

// forwardFree forwards a call that costs nothing. The caller must hold a lease.
func (x *call) forwardFree(ctx context.Context) error {
	if _, err := x.backend.Funds(ctx, x.held); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := x.send(ctx, x.body)
	if err != nil {
		return x.upstreamFailed(err)
	}
	defer resp.Body.Close()
	if hasInvalidStatus(resp) {
		return x.upstreamFailed(errors.New("its status cannot be passed on"))
	}
	return x.relayPlain(resp)
}

// hasInvalidStatus reports whether the status of an answer cannot be passed on.
func hasInvalidStatus(resp *http.Response) bool {
	return resp.StatusCode < 200 || resp.StatusCode > 599
}

// serve forwards a call of a model. It reserves the upper bound of the price
// first, and books the usage that the answer reports once the answer has ended.
func (x *call) serve(ctx context.Context) (err error) {
	if x.request, err = parseRequest(x.body, x.dialect); err != nil {
		return err
	}
	x.body = nil // it is in the prompt
	if err := checkPriceableHeaders(x.c.Request().Header); err != nil {
		return err
	}
	prices, ok := x.forwarder.proxy.Prices(), false
	if x.fees, err = x.request.fees(x.dialect, prices); err != nil {
		return err
	}
	if x.request.model == "" {
		return picket.Invalid("/model", "Name the model.", "model is required")
	}
	if x.price, ok = prices.Model(x.request.model); !ok {
		return unpricedModel(x.request.model)
	}
	if record := toolproxy.RecordOf(ctx); record != nil {
		record.Model, record.Vendor = x.request.model, x.vendor.name
	}
	x.size = x.request.measure(x.dialect)
	x.worstPrice = budget.TokenPrice{Input: x.price.MaxInput(), Output: x.price.Output}
	if x.size.hourCache {
		x.worstPrice.Input = max(x.worstPrice.Input, x.price.CacheWriteHour())
	}
	input := x.forwarder.knownPrompts.maxTokensRead(x.size)
	if x.request.usesExternal {
		input += externalContextTokens
	}
	most := x.request.requestedOutput()
	for try := 1; ; try++ {
		// Another call may have taken what was there a moment ago.
		probe := try <= 3 && most > x.minOutput()
		need := maxCost(x.worstPrice, input, totalOutput(most, x.request.choices), x.fees.most)
		_, err = x.forwarder.proxy.Metered(ctx, x.backend, x.held, toolproxy.MeteredCall{
			Tool:         x.vendor.ledgerTool,
			Model:        x.request.model,
			Effects:      picket.EffectsNone,
			Timeout:      x.forwarder.cfg.Timeout,
			Reserve:      &need,
			PriceVersion: prices.Version,
			Probe:        probe,
			Dispatch: func(ctx context.Context, _ picket.Reservation) (toolproxy.DispatchResult, error) {
				return x.dispatch(ctx, most)
			},
		})
		if probe && picket.CodeOf(err) == picket.CodeBudgetExceeded {
			most = x.affordableOutput(input, most, availableFrom(need, err))
			continue
		}
		switch {
		case err == nil && x.invalidStatus:
			return x.upstreamFailed(errors.New("its status cannot be passed on"))
		case err == nil && x.buffered != nil:
			return x.writeBuffered()
		}
		return err
	}
}

// requestedOutput is the longest answer that was asked for.
func (q *request) requestedOutput() int64 {
	if len(q.limits) == 0 {
		return defaultMaxOutput
	}
	return q.maxOutput
}

// minOutput is the shortest answer that is worth its prompt.
func (x *call) minOutput() int64 {
	return min(x.request.requestedOutput(), max(minUsefulOutput, x.request.thinkingBudget+1))
}

// affordableOutput is how long the answer may be with what the envelope has left. If that
// is too little, the shortest useful answer is asked for, and its refusal tells what is
// missing.
func (x *call) affordableOutput(input, most int64, have budget.Envelope) int64 {
	return max(longestAffordable(x.worstPrice, input, most, x.request.choices, x.fees.most, have), x.minOutput())
}

// availableFrom is what the envelope has according to a refusal, which reports only the
// dimension that was short. The other dimension is taken to cover the need; if it does
// not, the next refusal reports it.
func availableFrom(need budget.Envelope, err error) budget.Envelope {
	if refusal, ok := errors.AsType[*picket.Error](err); ok {
		switch have := refusal.Facts["available"].(type) {
		case budget.Money:
			need.USD = have
		case int64:
			need.Tokens = have
		}
	}
	return need
}

// dispatch makes the call and answers the agent as the answer comes.
func (x *call) dispatch(ctx context.Context, most int64) (toolproxy.DispatchResult, error) {
	up, cancel := x.forwarder.proxy.UntilClosed(context.WithoutCancel(ctx))
	defer cancel()
	up, stop := context.WithTimeout(up, x.forwarder.cfg.Timeout)
	defer stop()
	// A call that has begun is paid for, so the rest is read for its usage.
	forget := context.AfterFunc(x.c.Request().Context(), func() { time.AfterFunc(x.forwarder.cfg.Drain, stop) })
	defer forget()

	body := x.request.rewrite(x.dialect, most)
	x.request.discardBody()
	resp, err := x.send(up, body)
	if err != nil {
		return toolproxy.DispatchResult{}, toolproxy.MarkNotSent(x.upstreamFailed(err))
	}
	defer resp.Body.Close()
	nothing := budget.Envelope{}
	if x.invalidStatus = hasInvalidStatus(resp); x.invalidStatus {
		return toolproxy.DispatchResult{Cost: &nothing, Failed: true, Detail: x.ledgerDetail(resp, nil)}, nil
	}
	if resp.StatusCode/100 != 2 {
		return toolproxy.DispatchResult{Cost: &nothing, Failed: true, Detail: x.ledgerDetail(resp, nil)},
			x.relayPlain(resp)
	}
	t := &usageTally{}
	clean := x.relay(resp, t)
	if record := toolproxy.RecordOf(ctx); record != nil {
		record.Usage = t.total()
	}
	switch {
	case t.complete && (clean || t.ended):
		if !x.request.usesExternal && t.compaction == (budget.TokenUsage{}) { // else it had more than the answer tells
			x.forwarder.knownPrompts.learn(x.size, t.promptTokens())
		}
		fee, used := x.fees.cost(x.countUses(t))
		cost := budget.Envelope{Tokens: t.total().Total(), USD: x.price.Cost(t.total()).Add(fee)}
		return toolproxy.DispatchResult{Cost: &cost, Detail: x.ledgerDetail(resp, t) + used}, nil
	case clean && t.failed && !t.started: // the stream said only that nothing could be done
		return toolproxy.DispatchResult{Cost: &nothing, Failed: true, Detail: x.ledgerDetail(resp, nil)}, nil
	}
	if clean { // whole, but nobody knows what it cost
		return toolproxy.DispatchResult{}, x.upstreamFailed(errors.New("the answer says nothing of its usage"))
	}
	err = x.upstreamFailed(errors.New("the answer broke off"))
	x.writeStreamError(err)
	return toolproxy.DispatchResult{}, err
}

// ledgerDetail says in the ledger which model it was and what was counted.
func (x *call) ledgerDetail(resp *http.Response, t *usageTally) string {
	text := fmt.Sprintf("%s HTTP %d", web.Shortened(x.request.model), resp.StatusCode)
	if t != nil {
		u := t.total()
		text += fmt.Sprintf(" in %d out %d cache read %d write %d", u.Input, u.Output, u.CacheRead, u.CacheWrite)
	}
	return text
}

// upstreamFailed is a vendor that does not answer as it should.
func (x *call) upstreamFailed(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return picket.Refuse(picket.CodeUpstreamTimeout, "Try again later.", "%s did not answer in time",
			x.vendor.name).WithCause(err)
	}
	return picket.Refuse(picket.CodeUpstream, "Try again later.", "%s could not be reached, or its answer broke off",
		x.vendor.name).WithCause(err)
}

// send makes the request, at most once.
func (x *call) send(ctx context.Context, body []byte) (*http.Response, error) {
	in := x.c.Request()
	target := *x.endpoint.base
	target.Path += x.path
	target.RawQuery = in.URL.RawQuery
	out, err := http.NewRequestWithContext(ctx, in.Method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		content := &discardableBody{whole: body}
		defer content.discard()
		out.ContentLength, out.GetBody = int64(len(body)), content.open
		if out.Body, err = content.open(); err != nil {
			return nil, err
		}
	}
	out.Header = x.vendor.forwardedHeaders(in.Header)
	out.Header.Set("Accept-Encoding", "identity")
	x.vendor.sign(out.Header, x.endpoint)
	return x.forwarder.client.Do(out)
}

// writeHeader writes status and header.
func (x *call) writeHeader(resp *http.Response, more ...string) {
	h := x.c.Response().Header()
	for name, values := range endToEndHeaders(resp.Header) {
		h[name] = values
	}
	for i := 0; i+1 < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	web.ExtendWriteDeadline(x.c, time.Minute)
	x.headerWritten = true
	x.c.Response().WriteHeader(resp.StatusCode)
}

// write passes a piece on to the agent at once, unless the agent has gone away.
func (x *call) write(piece []byte) {
	if x.clientGone || len(piece) == 0 {
		return
	}
	web.ExtendWriteDeadline(x.c, time.Minute)
	if _, err := x.c.Response().Write(piece); err != nil {
		x.clientGone = true
		return
	}
	x.clientGone = http.NewResponseController(x.c.Response()).Flush() != nil
}

// relayPlain hands on an answer as it is, such as an error.
func (x *call) relayPlain(resp *http.Response) error {
	var more []string
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" {
		more = []string{"Content-Encoding", encoding}
	}
	if resp.ContentLength >= 0 {
		more = append(more, "Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	x.writeHeader(resp, more...)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		x.write(buf[:n])
		if err != nil || x.clientGone {
			return nil // the agent has the status already
		}
	}
}

// relay hands the answer of a model on and reads its usage on the way; clean
// says that it came to its end.
func (x *call) relay(resp *http.Response, t *usageTally) (clean bool) {
	body := io.Reader(resp.Body)
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip": // it was not asked for
		z, err := gzip.NewReader(body)
		if err != nil {
			return false
		}
		body = z
	default: // it cannot be read, so the usage stays unknown
		_ = x.relayPlain(resp)
		return false
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), sse.ContentType) {
		x.writeHeader(resp)
		return x.relayEvents(body, t)
	}
	return x.relayWhole(resp, body, t)
}

// relayEvents hands on event by event. The usage that the agent did not ask for
// is not shown to it.
func (x *call) relayEvents(body io.Reader, t *usageTally) (clean bool) {
	hide := x.dialect == openAIChat && !x.request.wantsUsage
	events := sse.NewReader(body, maxEvent)
	for {
		e, err := events.Next()
		if len(e.Data) > 0 {
			usageReaders[x.dialect](t, e.Data)
		}
		if !(hide && t.usageOnly) {
			x.write(e.Raw)
		}
		t.usageOnly = false
		if err != nil && !errors.Is(err, sse.ErrTooLong) { // which is handed on in pieces
			return errors.Is(err, io.EOF)
		}
	}
}

// relayWhole keeps an answer until it is paid for; one that is too large to be
// looked at is handed on as it comes.
func (x *call) relayWhole(resp *http.Response, body io.Reader, t *usageTally) (clean bool) {
	raw, err := io.ReadAll(io.LimitReader(body, maxEvent+1))
	if err == nil && len(raw) <= maxEvent {
		usageReaders[x.dialect](t, jsontext.Value(raw))
		if t.complete {
			x.buffered, x.bufferedHeader, x.bufferedStatus = raw, endToEndHeaders(resp.Header), resp.StatusCode
			return true
		}
	}
	x.writeHeader(resp)
	x.write(raw)
	for buf := make([]byte, 32<<10); err == nil; {
		var n int
		n, err = body.Read(buf)
		x.write(buf[:n])
	}
	return false
}

// writeBuffered answers with what was kept.
func (x *call) writeBuffered() error {
	x.writeHeader(&http.Response{Header: x.bufferedHeader, StatusCode: x.bufferedStatus}, "Content-Length",
		strconv.Itoa(len(x.buffered)))
	x.write(x.buffered)
	return nil
}

// writeStreamError ends a stream that broke off with an error that the agent's program
// understands; an answer that has not begun is an error as a whole.
func (x *call) writeStreamError(err error) {
	if !x.headerWritten || !strings.HasPrefix(x.c.Response().Header().Get("Content-Type"), sse.ContentType) {
		return
	}
	problem, encodeErr := toolproxy.EncodeJSON(x.vendor.encodeError(refusalOf(err)))
	if encodeErr != nil {
		return
	}
	e := sse.Event{Data: problem}
	if x.dialect != openAIChat {
		e.Type = "error"
	}
	x.write(e.AppendTo([]byte("\n\n"))) // the last event may be unfinished
}

// countUses is how often each tool was used that the vendor takes a fee for. What a
// prompt refers to may have brought tools that it does not name itself.
func (x *call) countUses(t *usageTally) map[string]int64 {
	all := maps.Clone(t.uses.observed)
	if all == nil {
		all = map[string]int64{}
	}
	maps.Copy(all, t.uses.reported)
	for name := range all {
		if !x.request.hasHostedTool(name) && (name == "shell" || slices.Contains(clientTools[x.dialect], name)) {
			delete(all, name)
		}
	}
	if x.dialect == openAIChat && x.request.hasHostedTool("web_search") { // with each answer, and none reports it
		all["web_search"] = x.request.choices
	}
	return all
}
