package toolproxy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
)

var fromOne = map[string]budget.Price{
	"paid":    {Call: cent, PerUnit: map[budget.Unit]budget.Money{budget.UnitByte: 1}, Max: 2 * cent},
	"success": {Call: cent, ChargeOn: budget.ChargeOnSuccess},
	"free":    {},
}

func answers(result string) func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
	return func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
		return toolproxy.DispatchResult{Result: picket.RawJSON(result), Used: budget.Usage{Bytes: 5}}, nil
	}
}

func failsWith(err error) func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
	return func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
		return toolproxy.DispatchResult{}, err
	}
}

// What a call costs, by how it ends. Nothing stays reserved, whatever happens.
func TestACallIsSettledByHowItEnds(t *testing.T) {
	broken := errors.New("connection reset")
	for _, c := range []struct {
		name     string
		tool     string
		dispatch func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error)
		charged  budget.Money
		outcome  picket.CallOutcome
		code     picket.Code
	}{
		{"answered", "paid", answers(`{"a":1}`), cent + 5, picket.CallDone, ""},
		{"free", "free", answers(`{}`), 0, picket.CallDone, ""},
		{"failed, charged on dispatch", "paid",
			func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
				return toolproxy.DispatchResult{Result: picket.RawJSON(`{}`), Failed: true}, nil
			}, cent, picket.CallFailed, ""},
		{"failed, charged on success", "success",
			func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
				return toolproxy.DispatchResult{Result: picket.RawJSON(`{}`), Failed: true}, nil
			}, 0, picket.CallFailed, ""},
		{"never left", "paid", failsWith(toolproxy.NotSent(broken)), 0, picket.CallUndispatched, picket.CodeUpstream},
		{"never left, with its own refusal", "paid",
			failsWith(toolproxy.NotSent(picket.Refuse(picket.CodeDestination, "r", "m"))), 0, picket.CallUndispatched,
			picket.CodeDestination},
		{"nobody knows", "paid", failsWith(broken), 2 * cent, picket.CallUncertain, picket.CodeUpstream},
		{"too slow", "paid", func(ctx context.Context, _ picket.Reservation) (toolproxy.DispatchResult, error) {
			<-ctx.Done()
			return toolproxy.DispatchResult{}, ctx.Err()
		}, 2 * cent, picket.CallUncertain, picket.CodeUpstreamTimeout},
		{"it says what it cost", "paid", func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
			return toolproxy.DispatchResult{Result: picket.RawJSON(`{}`), Cost: &budget.Envelope{Tokens: 3, USD: 7}},
				nil
		}, 7, picket.CallDone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				door := newFakeEnvelope(100 * cent)
				r, err := newPricedProxy(t, fromOne).
					Metered(t.Context(), door, aHeld, toolproxy.MeteredCall{Tool: c.tool, Dispatch: c.dispatch})
				if got := door.outcomes(); len(got) != 1 || got[0] != c.outcome {
					t.Errorf("settled as %v, want %s", got, c.outcome)
				}
				if c.code == "" && (err != nil || r.Cost.USD != c.charged || r.Available.USD != 100*cent-c.charged) {
					t.Errorf("%+v, %v", r, err)
				}
				var refusal *picket.Error
				if c.code != "" && (picket.CodeOf(err) != c.code || !errors.As(err, &refusal) || refusal.Remedy == "" ||
					refusal.Facts["charged"] != (budget.Envelope{USD: c.charged})) {
					t.Errorf("%v: %+v", err, refusal)
				}
				door.expectSettled(t, c.charged)
			})
		})
	}
}

// A tool without a price is refused, never free, and so is what the envelope
// or the fence refuses: nothing is called.
func TestWhatIsRefusedIsNeverCalled(t *testing.T) {
	called := 0
	dispatch := func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
		called++
		return toolproxy.DispatchResult{}, nil
	}
	p := newPricedProxy(t, fromOne)
	door := newFakeEnvelope(cent)
	for tool, want := range map[string]picket.Code{
		"unknown": picket.CodeUnpricedTool,
		"paid":    picket.CodeBudgetExceeded,
	} {
		if _, err := p.Metered(t.Context(), door, aHeld,
			toolproxy.MeteredCall{Tool: tool, Dispatch: dispatch}); picket.CodeOf(err) != want {
			t.Errorf("%s: %v", tool, err)
		}
	}
	door.err = picket.Refuse(picket.CodeStaleFence, "Stop.", "superseded")
	if _, err := p.Metered(t.Context(), door, aHeld,
		toolproxy.MeteredCall{Tool: "free", Dispatch: dispatch}); picket.CodeOf(err) != picket.CodeStaleFence {
		t.Errorf("stale: %v", err)
	}
	if called != 0 {
		t.Errorf("%d calls were made", called)
	}
	door.expectSettled(t, 0)
}

// The answer to a reservation that gets lost is asked for again; what nobody
// knows to be reserved is not called, and given back.
func TestALostReservationIsFoundAgain(t *testing.T) {
	for lost, asks := range map[int]int{1: 2, 2: 3, 3: 3} {
		door := newFakeEnvelope(10 * cent)
		door.loseReserve = lost
		called := 0
		_, err := newPricedProxy(t, fromOne).
			Metered(t.Context(), door, aHeld,
				toolproxy.MeteredCall{
					Tool: "paid",
					Dispatch: func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
						called++
						return toolproxy.DispatchResult{Result: picket.RawJSON(`{}`)}, nil
					},
				})
		want := cent
		if lost == 3 {
			want = 0
		}
		if door.asks != asks || (err != nil) != (lost == 3) || called != int(want/cent) {
			t.Errorf("%d lost: asked %d times, called %d times: %v", lost, door.asks, called, err)
		}
		door.expectSettled(t, want)
	}
}

// expiringBackend is an envelope of a lease that ends after the first call was asked for.
type expiringBackend struct{ *fakeEnvelope }

func (f expiringBackend) Reserve(ctx context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	if f.asks > 0 {
		return picket.Reservation{}, picket.Refuse(picket.CodeLeaseExpired, "Stop.", "the lease has expired")
	}
	return f.fakeEnvelope.Reserve(ctx, held, req)
}

// A reservation whose answer was lost is given back as well when it cannot be
// asked for again.
func TestALostReservationOfALeaseThatEndsIsGivenBack(t *testing.T) {
	door := newFakeEnvelope(10 * cent)
	door.loseReserve = 1
	_, err := newPricedProxy(t, fromOne).
		Metered(t.Context(), expiringBackend{door}, aHeld, toolproxy.MeteredCall{Tool: "paid", Dispatch: answers(`{}`)})
	if picket.CodeOf(err) != picket.CodeLeaseExpired {
		t.Errorf("answered %v", err)
	}
	door.expectSettled(t, 0)
}

// A settlement is tried until it is known; while the store is away the agent
// gets its answer all the same.
func TestALostSettlementIsRepeated(t *testing.T) {
	for _, lost := range []int{3, 1000} {
		synctest.Test(t, func(t *testing.T) {
			door := newFakeEnvelope(10 * cent)
			door.loseSettle = lost
			r, err := newPricedProxy(t, fromOne).
				Metered(t.Context(), door, aHeld, toolproxy.MeteredCall{Tool: "paid", Dispatch: answers(`{"a":1}`)})
			if err != nil || string(r.Result) != `{"a":1}` || r.Cost.USD != cent+5 {
				t.Errorf("%d lost: %+v %v", lost, r, err)
			}
			if lost == 3 && door.settlements != 4 || door.settlements < 4 {
				t.Errorf("settled %d times", door.settlements)
			}
			door.expectSettled(t, cent+5)
		})
	}
}

// A caller that goes away gets nothing back. With a key the call is finished
// for anyone who repeats it; without one it ends there.
func TestACallerThatGoesAwayIsNotRefunded(t *testing.T) {
	for key, want := range map[string]struct {
		outcome picket.CallOutcome
		charged budget.Money
	}{"": {picket.CallUncertain, 2 * cent}, "k": {picket.CallDone, cent}} {
		synctest.Test(t, func(t *testing.T) {
			p, door := newPricedProxy(t, fromOne), newFakeEnvelope(10*cent)
			ctx, gone := context.WithCancel(t.Context())
			call := toolproxy.MeteredCall{
				Tool: "paid",
				Key:  key,
				Dispatch: func(ctx context.Context, _ picket.Reservation) (toolproxy.DispatchResult, error) {
					gone()
					select {
					case <-ctx.Done():
						return toolproxy.DispatchResult{}, ctx.Err()
					case <-time.After(time.Second):
						return toolproxy.DispatchResult{Result: picket.RawJSON(`{"n":1}`)}, nil
					}
				},
			}
			_, _ = p.Metered(ctx, door, aHeld, call)
			if got := door.outcomes(); len(got) != 1 || got[0] != want.outcome {
				t.Errorf("key %q: %v", key, got)
			}
			door.expectSettled(t, want.charged)
			if key != "" {
				r, err := p.Metered(t.Context(), door, aHeld, call)
				if err != nil || !r.Replayed || string(r.Result) != `{"n":1}` || r.Cost.USD != cent {
					t.Errorf("repeated: %+v %v", r, err)
				}
				door.expectSettled(t, want.charged)
			}
		})
	}
}

// When the lease ends, calls that act on the world outside are cut off, and
// the others are not: nobody waits for these.
func TestTheEndOfALeaseCutsItsCallsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, door := newPricedProxy(t, fromOne), newFakeEnvelope(100*cent)
		errs := make(chan error, 3)
		for i, effects := range []picket.Effects{picket.EffectsExternal, picket.EffectsExternal, picket.EffectsNone} {
			go func() {
				_, err := p.Metered(t.Context(), door, aHeld,
					toolproxy.MeteredCall{Tool: "paid", Key: fmt.Sprint(i), Effects: effects, Timeout: time.Minute,
						Dispatch: func(ctx context.Context, _ picket.Reservation) (toolproxy.DispatchResult, error) {
							<-ctx.Done()
							return toolproxy.DispatchResult{}, ctx.Err()
						}})
				errs <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		close(door.ended)
		for range 2 {
			if err := <-errs; picket.CodeOf(err) != picket.CodeLeaseReleased || time.Since(began) > time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		}
		if err := <-errs; picket.CodeOf(err) != picket.CodeUpstreamTimeout || time.Since(began) < 50*time.Second {
			t.Errorf("the one without effects, after %s: %v", time.Since(began), err)
		}
		door.expectSettled(t, 6*cent)
	})
}

func TestAnswersCarryTheirCost(t *testing.T) {
	for result, want := range map[string]string{
		`{"a":1,"cost":"mine"}`: `{"a":1,"available":{"tokens":2,"usd":0.5},"cost":{"tokens":0,"usd":0.01},"replayed":true}`,
		`[1]`:                   `{"available":{"tokens":2,"usd":0.5},"cost":{"tokens":0,"usd":0.01},"replayed":true,"result":[1]}`,
		``:                      `{"available":{"tokens":2,"usd":0.5},"cost":{"tokens":0,"usd":0.01},"replayed":true,"result":null}`,
	} {
		r := toolproxy.MeteredResult{
			Result:    picket.RawJSON(result),
			Cost:      budget.Envelope{USD: cent},
			Available: budget.Envelope{Tokens: 2, USD: 50 * cent},
			Replayed:  true,
		}
		if got, err := r.Answer(); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", result, got, err)
		}
	}
}
