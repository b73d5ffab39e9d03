package store

import "strings"

// lanePrefix begins the message that a lane has a task. The rest is the lane.
const lanePrefix = "lane "

// SplitLane takes a lane that is an agent's too apart: the agent, or "", and the
// lane of everybody else.
func SplitLane(lane string) (agent, open string) {
	if rest, ok := strings.CutPrefix(lane, "for:"); ok {
		agent, open, _ = strings.Cut(rest, "|")
		return agent, open
	}
	return "", lane
}

// LaneAgent returns the agent of a lane, whether the lane is for it alone or not; "" if it has none.
func LaneAgent(lane string) string {
	if agent, ok := strings.CutPrefix(lane, "agent:"); ok {
		return agent
	}
	agent, _ := SplitLane(lane)
	return agent
}
