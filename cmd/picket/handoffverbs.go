package main

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newHandoffClaim() *cobra.Command {
	c := onHandoff("claim", "Say that you take care of it", func(cmd *cobra.Command, s *connection, id string) error {
		var body picket.ClaimRequest
		body.TakeOver, _ = cmd.Flags().GetBool("take-over")
		var raw jsontext.Value
		var h picket.Handoff
		if err := s.post(cmd.Context(), "/api/v1/handoffs/"+pathSegment(id)+"/claim", body, &h, &raw); err != nil {
			return err
		}
		return s.printHandoff(cmd.Context(), cmd, cmd.OutOrStdout(), h, raw)
	})
	c.Long = "Say that you take care of a hand-off, for others to see. What somebody else has claimed stays theirs without --take-over.\n" +
		"A claim is a courtesy: anybody may still answer, and the first answer counts."
	c.Flags().Bool("take-over", false, "take it over from whoever has claimed it")
	return term.FormatFlag(c)
}

func newHandoffAnswer() *cobra.Command {
	c := onHandoff("answer", "Answer the agent: its task is queued again with the answer",
		func(cmd *cobra.Command, s *connection, id string) error {
			body, err := answerOf(cmd)
			if err != nil {
				return err
			}
			task, raw, err := s.answer(cmd, id, body)
			if err != nil {
				return err
			}
			return printTask(cmd, task, raw, "answered")
		})
	c.Long = "Answer the agent: its task is queued again, and all its later runs are handed the answer. --input gives them another\n" +
		"input, too; the task itself keeps what was submitted. Who answers second is refused (exit code 4) and is told of the first."
	c.Example = "  picket handoff answer --text \"use the staging key\"\n  picket handoff answer 7Q2K --option yes\n" +
		"  picket handoff answer --option 2 --input @corrected.json"
	c.Flags().StringP("text", "t", "", "the answer: JSON, else text; @file and - (stdin) are read")
	c.Flags().String("option", "", "one of the options offered, or its number")
	c.Flags().String("input", "",
		"the task's input from now on: JSON, null as well, else text; @file and - (stdin) are read")
	_ = c.RegisterFlagCompletionFunc("option", completeOptions)
	c.MarkFlagsOneRequired("text", "option", "input")
	return term.FormatFlag(c)
}

// completeOptions offers the options of the hand-off that was named, or of the
// only one that is open.
func completeOptions(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	s, err := connect(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	open, _ := s.handoffs(cmd.Context(), picket.HandoffOpen)
	for _, h := range open {
		if len(given) > 0 && given[0] == h.HandoffID || len(open) == 1 {
			var offers []cobra.Completion
			for i, o := range h.Options {
				offers = append(offers, cobra.CompletionWithDesc(strconv.Itoa(i+1), term.Clip(o, 50)))
			}
			return offers, cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func answerOf(cmd *cobra.Command) (picket.AnswerRequest, error) {
	var body picket.AnswerRequest
	if cmd.Flags().Changed("option") {
		o, _ := cmd.Flags().GetString("option")
		body.Option = &o
	}
	if text, _ := cmd.Flags().GetString("text"); text != "" {
		raw, err := jsonArgument(cmd, "--text", text)
		if err != nil {
			return body, err
		}
		body.Answer = raw
	}
	if input, _ := cmd.Flags().GetString("input"); input != "" {
		raw, err := jsonArgument(cmd, "--input", input)
		if err != nil {
			return body, err
		}
		body.Input, body.ClearInput = raw, string(bytes.TrimSpace(raw)) == "null"
	}
	return body, nil
}

// answer sends an answer; an option given by its number is looked up first.
func (s *connection) answer(cmd *cobra.Command, id string,
	body picket.AnswerRequest) (picket.Task, jsontext.Value, error) {
	var task picket.Task
	var raw jsontext.Value
	if body.Option != nil {
		var h picket.Handoff
		if err := s.get(cmd.Context(), "/api/v1/handoffs/"+pathSegment(id), &h, nil); err != nil {
			return task, nil, err
		}
		body.Option = optionByNumber(h.Options, *body.Option)
	}
	err := s.post(cmd.Context(), "/api/v1/handoffs/"+pathSegment(id)+"/answer", body, &task, &raw)
	return task, raw, err
}

// optionByNumber turns "2" into the second option, unless an option is itself
// called "2".
func optionByNumber(options []string, typed string) *string {
	n, err := strconv.Atoi(typed)
	if err == nil && n >= 1 && n <= len(options) && !slices.Contains(options, typed) {
		return &options[n-1]
	}
	return &typed
}

func newHandoffFinish() *cobra.Command {
	c := onHandoff("finish", "Do the task yourself: it is completed with your output",
		func(cmd *cobra.Command, s *connection, id string) error {
			text, _ := cmd.Flags().GetString("result")
			result, err := jsonArgument(cmd, "--result", text)
			if err != nil {
				return err
			}
			body := struct {
				Output picket.RawJSON `json:"output"`
			}{result}
			var raw jsontext.Value
			var task picket.Task
			if err := s.post(cmd.Context(), "/api/v1/handoffs/"+pathSegment(id)+"/finish", body, &task,
				&raw); err != nil {
				return err
			}
			return printTask(cmd, task, raw, "finished")
		})
	c.Flags().String("result", "", "the task's output: JSON, else text; @file and - (stdin) are read")
	_ = c.MarkFlagRequired("result")
	return term.FormatFlag(c)
}

func newHandoffCancel() *cobra.Command {
	c := onHandoff("cancel", "Give the task up", func(cmd *cobra.Command, s *connection, id string) error {
		reason, _ := cmd.Flags().GetString("reason")
		var raw jsontext.Value
		var task picket.Task
		if err := s.post(cmd.Context(), "/api/v1/handoffs/"+pathSegment(id)+"/cancel", reasonBody{reason}, &task,
			&raw); err != nil {
			return err
		}
		return printTask(cmd, task, raw, "cancelled")
	})
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}
