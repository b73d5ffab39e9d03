package orchestrator

import "github.com/picket-dev/picket/orchestrator/store"

// The topics of the long polls. Scripts publish the same words.

func taskTopic(taskID string) store.Topic        { return store.Topic("task " + taskID) }
func fundsTopic(taskID string) store.Topic       { return store.Topic("funds " + taskID) }
func logTopic(taskID string) store.Topic         { return store.Topic("log " + taskID) }
func execTopic(runID, callID string) store.Topic { return store.Topic("exec " + runID + ":" + callID) }
func agentTopic(agentID string) store.Topic      { return store.Topic("agent " + agentID) }
func revokedTopic(keyID string) store.Topic      { return store.Topic("revoked " + keyID) }
