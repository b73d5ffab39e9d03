package sessions

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
)

// Messages that come while a process works on a prompt are passed on to it as lines. They are read with its capability,
// as its tool read_messages reads them: the server acknowledges them in the same step. So the tool does not answer
// them a second time. The record of the session keeps what was read until the agent has begun to work on the line, and
// the next prompt passes it on if the process ended before that. A read that may have been lost on the way is repeated
// under the same key, which answers the same messages. So nothing is lost while the session lives, and nothing comes
// twice, with two exceptions. The adapter may crash between a read and its record, or between a line and its record. Or
// the server takes a read and cannot be reached again before the prompt has ended.
//
// The alternative is to look first and to acknowledge when the line was taken. Then an agent that sees the number of
// unread messages and calls the tool meanwhile gets each of them twice, without any crash.

// passOnMessages passes messages on to the process until the function that it returns is called, which waits.
func (r *streaming) passOnMessages(p prompt) (end func()) {
	ctx, cancel := context.WithCancel(r.k.sending)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.writeMessages(r.keptMessages())
		for {
			select {
			case <-r.news:
			case <-ctx.Done():
				return
			}
			r.writeMessages(r.readMessages(ctx, p.access))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// writeMessages writes messages to the process, if it still works on the prompt.
func (r *streaming) writeMessages(all []picket.Message) {
	if len(all) == 0 {
		return
	}
	line := agents.NewLineID()
	r.turns.Lock()
	open := r.open != nil
	if open {
		r.waiting[line] = all
	}
	r.turns.Unlock()
	if open {
		_, _ = r.stdin.Write(agents.UserLine(line, agents.MessagesText(all))) // fails only if the process ends
	}
}

// readMessages reads what waits for the agent, and keeps it in the record of the session.
func (r *streaming) readMessages(ctx context.Context, reach access) []picket.Message {
	if reach.capability == "" || !r.works() {
		return nil
	}
	key, retry := rand.Text(), retryPace()
	for {
		// The end of the prompt does not end a read: what it acknowledges would be lost.
		read, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		got, err := reach.readMessages(read, key)
		cancel()
		if err == nil {
			if got.Unread > 0 {
				signal(r.news)
			}
			r.keepMessages(got.Messages)
			return got.Messages
		}
		if ctx.Err() == nil {
			r.k.cfg.Log.Warn("the messages to an agent session cannot be read", "session", r.id, "err", err)
		}
		if picket.CodeOf(err) != picket.CodeUnavailable || !retry.pause(ctx, err) {
			return nil
		}
	}
}

// works reports whether the process works on a prompt.
func (r *streaming) works() bool {
	r.turns.Lock()
	defer r.turns.Unlock()
	return r.open != nil
}

// keptMessages are those that were read and that the agent has not seen.
func (s *session) keptMessages() []picket.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.record.Messages)
}

// keepMessages keeps messages until the agent has seen them.
func (s *session) keepMessages(read []picket.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Messages = append(s.record.Messages, read...)
	s.saveOrWarn()
}

// forgetMessages takes note that the agent has seen messages.
func (s *session) forgetMessages(seen []picket.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Messages = slices.DeleteFunc(s.record.Messages, func(kept picket.Message) bool {
		return slices.ContainsFunc(seen, func(m picket.Message) bool { return m.MessageID == kept.MessageID })
	})
	s.saveOrWarn()
}

// readMessages calls the tool of this name. The same key again answers the same messages. An error with
// [picket.CodeUnavailable] may go away.
func (a access) readMessages(ctx context.Context, key string) (got picket.MessagesRead, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.proxyURL+"/v1/tools/read_messages",
		bytes.NewReader([]byte("{}")))
	if err != nil {
		return got, err
	}
	req.Header.Set("Authorization", "Bearer "+a.capability.Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return got, fmt.Errorf("%w: %w", picket.CodeUnavailable, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxMessages))
	switch {
	case res.StatusCode >= 500 || err != nil:
		return got, cmp.Or(err, fmt.Errorf("%w: it answers %d", picket.CodeUnavailable, res.StatusCode))
	case res.StatusCode != http.StatusOK:
		return got, fmt.Errorf("it answers %d", res.StatusCode)
	}
	return got, json.Unmarshal(body, &got)
}

// maxMessages bounds an answer of read_messages, in bytes.
const maxMessages = 16 << 20
