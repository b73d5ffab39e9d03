package llm

// dialect is one way of asking a language model.
type dialect struct {
	messagesMember string   // the member that holds the messages
	limitMembers   []string // members that limit the answer; the first is put in where there is none
}

var (
	anthropicMessages = &dialect{
		messagesMember: "messages",
		limitMembers:   []string{"max_tokens"},
	}
	openAIChat = &dialect{
		messagesMember: "messages",
		limitMembers:   []string{"max_completion_tokens", "max_tokens"},
	}
	openAIResponses = &dialect{
		messagesMember: "input",
		limitMembers:   []string{"max_output_tokens"},
	}
)
