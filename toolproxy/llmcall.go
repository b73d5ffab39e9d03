package toolproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

// thought is one request of an agent on its way to a vendor and back.
type thought struct {
	llm     *llm
	c       echo.Context
	vendor  *vendor
	dialect *dialect // nil: it costs nothing
	up      *llmUpstream
	door    Door
	held    picket.Held
	path    string
	body    []byte

	prompt   *prompt
	parts    measured
	price    budget.TokenPrice
	dearest  budget.TokenPrice // of the tokens of its prompt, and of the answer's
	fees     fees
	whole    []byte      // an answer that is not a stream, kept until it is paid
	header   http.Header // its header
	status   int
	odd      bool // its status is none that can be handed on
	unheard  bool // the agent has gone away
	answered bool // the first byte was written
}

// pass forwards a call that costs nothing, for who holds a lease.
func (x *thought) pass(ctx context.Context) error {
	if _, err := x.door.AwaitTopUp(ctx, x.held, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := x.send(ctx, x.body)
	if err != nil {
		return x.away(err)
	}
	defer resp.Body.Close()
	if odd(resp) {
		return x.away(errors.New("its status is none that ends a call"))
	}
	return x.relayPlain(resp)
}

// odd says that the status of an answer is none that can be handed on.
func odd(resp *http.Response) bool { return resp.StatusCode < 200 || resp.StatusCode > 599 }

// think forwards a call of a model: the bound of its price is reserved first,
// and what the answer says it used is booked when it has ended.
func (x *thought) think(ctx context.Context) (err error) {
	if x.prompt, err = parsePrompt(x.body, x.dialect); err != nil {
		return err
	}
	x.body = nil // it is in the prompt
	if err := weighHeaders(x.c.Request().Header); err != nil {
		return err
	}
	prices, ok := x.llm.proxy.prices(), false
	if x.fees, err = x.prompt.fees(x.dialect, prices); err != nil {
		return err
	}
	if x.prompt.model == "" {
		return picket.Invalid("/model", "Name the model.", "model is required")
	}
	if x.price, ok = prices.Model(x.prompt.model); !ok {
		return unpricedModel(x.prompt.model)
	}
	x.parts = x.prompt.measure(x.dialect)
	x.dearest = budget.TokenPrice{Input: x.price.Dearest(), Output: x.price.Output}
	if x.parts.hour {
		x.dearest.Input = max(x.dearest.Input, x.price.Hour())
	}
	input := x.llm.known.bound(x.parts)
	if x.prompt.refers {
		input += referredContext
	}
	most := x.prompt.most()
	for try := 1; ; try++ {
		// Another call may have taken what was there a moment ago.
		probe := try <= 3 && most > x.least()
		need := bounded(x.dearest, input, together(most, x.prompt.copies), x.fees.most)
		_, err = x.llm.proxy.Metered(ctx, x.door, x.held, MeteredCall{
			Tool:         x.vendor.tool,
			Effects:      picket.EffectsNone,
			Timeout:      x.llm.cfg.Timeout,
			Reserve:      &need,
			PriceVersion: prices.Version,
			Probe:        probe,
			Dispatch: func(ctx context.Context,
				_ picket.Reservation) (Dispatched, error) {
				return x.dispatch(ctx, most)
			},
		})
		if probe && picket.CodeOf(err) == picket.CodeBudgetExceeded {
			most = x.room(input, most, left(need, err))
			continue
		}
		switch {
		case err == nil && x.odd:
			return x.away(errors.New("its status is none that ends a call"))
		case err == nil && x.whole != nil:
			return x.answerWhole()
		}
		return err
	}
}

// most is the longest answer that was asked for.
func (q *prompt) most() int64 {
	if len(q.limits) == 0 {
		return openOutput
	}
	return q.output
}

// least is the shortest answer that is worth its prompt.
func (x *thought) least() int64 {
	return min(x.prompt.most(), max(leastOutput, x.prompt.think+1))
}

// room is how long the answer may be with what the envelope has left: where that
// is too little the shortest one is asked for all the same, and its refusal says
// what is missing.
func (x *thought) room(input, most int64, have budget.Envelope) int64 {
	return max(affordable(x.dearest, input, most, x.prompt.copies, x.fees.most, have), x.least())
}

// left is what there is, as far as a refusal for want of money tells: of the
// dimension that was short. The other one covers what was asked for, or is told of
// when it is asked again.
func left(need budget.Envelope, err error) budget.Envelope {
	var refusal *picket.Error
	if errors.As(err, &refusal) {
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
func (x *thought) dispatch(ctx context.Context, most int64) (Dispatched, error) {
	up, cancel := x.llm.proxy.untilClosed(context.WithoutCancel(ctx))
	defer cancel()
	up, stop := context.WithTimeout(up, x.llm.cfg.Timeout)
	defer stop()
	// What was begun is paid for: the rest is read for its usage.
	forget := context.AfterFunc(x.c.Request().Context(), func() { time.AfterFunc(x.llm.cfg.Drain, stop) })
	defer forget()

	body := x.prompt.rewritten(x.dialect, most)
	x.prompt.forget()
	resp, err := x.send(up, body)
	if err != nil {
		return Dispatched{}, unsent(x.away(err))
	}
	defer resp.Body.Close()
	nothing := budget.Envelope{}
	if x.odd = odd(resp); x.odd {
		return Dispatched{Cost: &nothing, Failed: true, Detail: x.detail(resp, nil)}, nil
	}
	if resp.StatusCode/100 != 2 {
		return Dispatched{Cost: &nothing, Failed: true, Detail: x.detail(resp, nil)}, x.relayPlain(resp)
	}
	t := &tally{}
	clean := x.relay(resp, t)
	switch {
	case t.final && (clean || t.ended):
		if !x.prompt.refers && t.aside == (budget.Tokens{}) { // else it had more than the answer tells
			x.llm.known.learn(x.parts, t.input())
		}
		fee, used := x.fees.cost(x.used(t))
		cost := budget.Envelope{Tokens: t.all().Total(), USD: x.price.Cost(t.all()).Plus(fee)}
		return Dispatched{Cost: &cost, Detail: x.detail(resp, t) + used}, nil
	case clean && !t.begun && x.answered:
		// A stream that only said that nothing could be done.
		return Dispatched{Cost: &nothing, Failed: true, Detail: x.detail(resp, nil)}, nil
	}
	if clean { // whole, but nobody knows what it cost
		return Dispatched{}, x.away(errors.New("the answer says nothing of its usage"))
	}
	err = x.away(errors.New("the answer broke off"))
	x.breakOff(err)
	return Dispatched{}, err
}

// detail says in the ledger which model it was and what was counted.
func (x *thought) detail(resp *http.Response, t *tally) string {
	text := fmt.Sprintf("%s HTTP %d", clip(x.prompt.model), resp.StatusCode)
	if t != nil {
		u := t.all()
		text += fmt.Sprintf(" in %d out %d cache read %d write %d", u.Input, u.Output, u.CacheRead, u.CacheWrite)
	}
	return text
}

// away is a vendor that does not answer as it should.
func (x *thought) away(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return picket.Refuse(picket.CodeUpstreamTimeout, "Try again later.", "%s did not answer in time",
			x.vendor.name).Because(err)
	}
	return picket.Refuse(picket.CodeUpstream, "Try again later.", "%s could not be reached, or its answer broke off",
		x.vendor.name).Because(err)
}

// send makes the request, at most once.
func (x *thought) send(ctx context.Context, body []byte) (*http.Response, error) {
	in := x.c.Request()
	target := *x.up.base
	target.Path += x.path
	target.RawQuery = in.URL.RawQuery
	out, err := http.NewRequestWithContext(ctx, in.Method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		content := &parcel{whole: body}
		defer content.drop()
		out.ContentLength, out.GetBody = int64(len(body)), content.open
		if out.Body, err = content.open(); err != nil {
			return nil, err
		}
	}
	out.Header = x.vendor.wanted(in.Header)
	out.Header.Set("Accept-Encoding", "identity")
	x.vendor.sign(out.Header, x.up)
	return x.llm.client.Do(out)
}

// begin writes status and header.
func (x *thought) begin(resp *http.Response, more ...string) {
	h := x.c.Response().Header()
	for name, values := range passed(resp.Header) {
		h[name] = values
	}
	for i := 0; i+1 < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	web.ExtendAnswer(x.c, time.Minute)
	x.answered = true
	x.c.Response().WriteHeader(resp.StatusCode)
}

// write hands a piece to the agent at once; one who has gone away is not waited
// for.
func (x *thought) write(piece []byte) {
	if x.unheard || len(piece) == 0 {
		return
	}
	web.ExtendAnswer(x.c, time.Minute)
	if _, err := x.c.Response().Write(piece); err != nil {
		x.unheard = true
		return
	}
	x.unheard = http.NewResponseController(x.c.Response()).Flush() != nil
}

// relayPlain hands on an answer as it is, such as an error.
func (x *thought) relayPlain(resp *http.Response) error {
	var more []string
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" {
		more = []string{"Content-Encoding", encoding}
	}
	if resp.ContentLength >= 0 {
		more = append(more, "Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	x.begin(resp, more...)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		x.write(buf[:n])
		if err != nil || x.unheard {
			return nil // the status was the answer; a connection that broke tells by itself
		}
	}
}
