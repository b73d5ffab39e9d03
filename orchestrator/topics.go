package orchestrator

// A topic is a message that wakes the long polls of a namespace.
type topic string

func taskTopic(taskID string) topic         { return topic("task " + taskID) }
func fundsTopic(taskID string) topic        { return topic("funds " + taskID) }
func logTopic(taskID string) topic          { return topic("log " + taskID) }
func execTopic(runID, callID string) topic  { return topic("exec " + runID + ":" + callID) }
func agentTopic(agentID string) topic       { return topic("agent " + agentID) }
func revokedTopic(keyID string) topic       { return topic("revoked " + keyID) }
func (t topic) matches(message string) bool { return string(t) == message }
