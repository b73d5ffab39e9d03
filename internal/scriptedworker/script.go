package scriptedworker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// Step is what the worker does with the tasks of some messages.
type Step struct {
	Prefix string // of the ids of the messages
	Does   string // for a reader
	do     func(*run, context.Context) error
}

// Script has the steps of all known messages. Of two prefixes that fit, the longer one counts. A task of any other
// message is completed with a text that names its message.
var Script = []Step{
	{"tck-complete-task", "completes the task with the text `Hello from TCK`", completes(`"Hello from TCK"`)},
	{"tck-delayed-complete", "works for the delay, then completes the task", later(1, completes(`"Done after delay"`))},
	{"tck-artifact-text", "completes the task with a text part", completes(`{"parts":[{"text":"Generated text content"}]}`)},
	{"tck-artifact-file", "completes the task with the bytes of `output.txt`, of type `text/plain`", completes(fileParts)},
	{"tck-artifact-file-url", "completes the task with the address of `output.txt`", completes(`{"parts":[{"url":` +
		`"https://example.com/output.txt","mediaType":"text/plain","filename":"output.txt"}]}`)},
	{"tck-artifact-data", "completes the task with the data part `{\"key\": \"value\", \"count\": 42}`",
		completes(`{"parts":[{"data":{"key":"value","count":42}}]}`)},
	{"tck-message-response", "replies with the text `Direct message response`, if the client takes a message as the " +
		"answer; otherwise it completes the task with that text", replies},
	{"tck-input-required", "asks a question, and completes the task after the answer",
		asks(picket.HelpRequest{Question: "What else is needed?"})},
	{"tck-auth-required", "asks for an approval, and completes the task after it",
		asks(picket.HelpRequest{Question: "May this be done?", Kind: picket.HandoffApproval})},
	{"tck-reject-task", "rejects the task", func(r *run, ctx context.Context) error {
		return r.Tool(ctx, "mark_failed", map[string]any{"reason": "rejected", "class": picket.ExitRejected}, nil)
	}},
	{"tck-stream-001", "works for a tenth of the delay, then completes the task with a text part",
		later(0.1, completes(`{"parts":[{"text":"Stream hello from TCK"}]}`))},
	{"tck-stream-002", "completes the task without output", completes(`null`)},
	{"tck-stream-003", "works for a tenth of the delay, then completes the task with a text part",
		later(0.1, completes(`{"parts":[{"text":"Stream task lifecycle"}]}`))},
	{"tck-stream-ordering-001", "works for a tenth of the delay, then completes the task with a text part",
		later(0.1, completes(`{"parts":[{"text":"Ordered output"}]}`))},
	{"tck-stream-artifact-text", "works for a tenth of the delay, then completes the task with a text part",
		later(0.1, completes(`{"parts":[{"text":"Streamed text content"}]}`))},
	{"tck-stream-artifact-file", "works for a tenth of the delay, then completes the task with the bytes of `output.txt`",
		later(0.1, completes(fileParts))},
	{"tck-stream-artifact-chunked", "emits an artifact in two pieces, then completes the task without output",
		later(0.1, emits("chunk-1 ", "chunk-2"))},
	{"tck-cancel", "works until the task is cancelled, at most five minutes", (*run).hold},
	{"test-resubscribe-message-id", "works for twice the delay, then completes the task", later(2, completes(`"done"`))},
}

// fileParts are the bytes of a file.
const fileParts = `{"parts":[{"raw":"dGNr","mediaType":"text/plain","filename":"output.txt"}]}`

// StepOf is what the worker does with the task of a message.
func StepOf(messageID string) Step {
	best := Step{do: func(r *run, ctx context.Context) error {
		return completes(`"Unhandled messageId prefix"`)(r, ctx)
	}}
	for _, s := range Script {
		if strings.HasPrefix(messageID, s.Prefix) && len(s.Prefix) > len(best.Prefix) {
			best = s
		}
	}
	return best
}

// perform does what the message asks for.
func (r *run) perform(ctx context.Context) error { return StepOf(r.messageID).do(r, ctx) }

// completes completes the task with an output.
func completes(output string) func(*run, context.Context) error {
	return func(r *run, ctx context.Context) error {
		_, err := r.Complete(ctx, picket.RawJSON(output), "Hello from TCK")
		return err
	}
}

// later works for a part of the delay before it does something.
func later(part float64, do func(*run, context.Context) error) func(*run, context.Context) error {
	return func(r *run, ctx context.Context) error {
		if err := wait(ctx, time.Duration(part*float64(r.delay))); err != nil {
			return err
		}
		return do(r, ctx)
	}
}

// asks asks something, and completes the task in the run after the answer.
func asks(question picket.HelpRequest) func(*run, context.Context) error {
	return func(r *run, ctx context.Context) error {
		if len(r.lease.Answers) > 0 {
			return completes(`"Thank you"`)(r, ctx)
		}
		_, err := r.RequestHelp(ctx, question)
		return err
	}
}

// emits emits an artifact in pieces of text, and completes the task.
func emits(pieces ...string) func(*run, context.Context) error {
	return func(r *run, ctx context.Context) error {
		for i, piece := range pieces {
			chunk := picket.ArtifactChunk{Parts: []picket.Part{{Text: &piece}}, Append: i > 0, Last: i == len(pieces)-1}
			if err := r.Tool(ctx, "emit", chunk, nil); err != nil {
				return err
			}
		}
		return completes("null")(r, ctx)
	}
}

// replies answers with a message and no task, if the client takes one.
func replies(r *run, ctx context.Context) error {
	text := "Direct message response"
	err := r.Tool(ctx, "reply", picket.Reply{Parts: []picket.Part{{Text: &text}}}, nil)
	if !errors.Is(err, picket.CodeStateConflict) {
		return err
	}
	return completes(`"Direct message response"`)(r, ctx)
}

// hold keeps the lease until it ends.
func (r *run) hold(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for {
		w, _, err := r.Watch(ctx, renewEvery)
		if err != nil || w.State != "" && w.State != picket.WatchHeld {
			return err
		}
		if _, err := r.Renew(ctx); err != nil {
			return err
		}
	}
}
