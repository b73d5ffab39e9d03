package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/store"
)

// wakeReply is what the script wake_facts answers. Times are ms of store time where it does not say else.
type wakeReply struct {
	Raw    int64             `reply:"raw"` // by the server's own clock
	Now    int64             `reply:"now"`
	Known  int64             `reply:"known"`
	Paused bool              `reply:"paused"`
	Rows   []policyRow       `reply:"rows"`
	Newest string            `reply:"newest"`
	Over   string            `reply:"over"`
	File   *policyFileRecord `reply:"file,json"`
	Away   bool              `reply:"away"`

	Sessions  int         `reply:"sessions"` // of the agent name that live, if none was named
	Money     int64       `reply:"money"`    // nano-dollars that its wakes have left today
	Unspent   int64       `reply:"unspent"`  // the same if no open prompt had reserved anything
	Short     string      `reply:"short"`    // the envelope that has the least of them
	Row       *sessionRow `reply:"row"`
	Owner     string      `reply:"owner"`
	Role      string      `reply:"role"`
	Tags      string      `reply:"capabilities"`
	Stopping  bool        `reply:"stopping"`
	Since     int64       `reply:"since"` // when the session began
	Last      int64       `reply:"last"`
	Unchanged int64       `reply:"unchanged"`
	UnderWay  bool        `reply:"under_way"`
	Idle      int         `reply:"idle"`
	Seen      string      `reply:"seen"`
	ByAgents  string      `reply:"by_agents"`
	InCycle   int         `reply:"in_cycle"`
	Stamp     string      `reply:"stamp"`
	People    int         `reply:"people"`
	Agents    int         `reply:"agents"`
	Message   string      `reply:"newest_message"`
	Unread    int         `reply:"unread"`
	Pinned    string      `reply:"pinned"` // mark of the lane of the agent
	Held      int         `reply:"held"`
	Settled   int         `reply:"settled"`
	Context   string      `reply:"context"`
	queues                // if they were asked for
}

// wakeFacts are a wakeReply with the policy that it is decided by.
type wakeFacts struct {
	wakeReply
	name     string
	shown    picket.WakePolicy
	policy   *heartbeat.Policy // nil: there is none
	settings heartbeat.Settings
	limits   wakeLimits
}

// wakeFacts reads all that a decision about a wake is made by. Without sessionID it is the session of the
// agent name, if that has exactly one. withQueues says whether its queues are read, too.
func (e *Engine) wakeFacts(ctx context.Context, name, sessionID string, withQueues bool) (f wakeFacts, err error) {
	if err := picket.CheckName("name", name); err != nil {
		return f, err
	}
	if e.refreshPolicy != nil {
		if err := e.refreshPolicy(ctx, name); err != nil {
			e.log.Warn("the file of a wake policy cannot be compared with the store", "name", name, "err", err)
		}
	}
	return e.storedWakeFacts(ctx, name, sessionID, withQueues)
}

// storedWakeFacts are wakeFacts as the store has them. It changes nothing.
func (e *Engine) storedWakeFacts(ctx context.Context, name, sessionID string, withQueues bool) (f wakeFacts,
	err error) {
	f.name, f.settings, f.limits = name, e.store.cfg.Wake, e.wakeLimits(name)
	r := e.run(ctx, "wake_facts", name, sessionID, e.store.limits, e.dailyLimitArg(), boolArg(withQueues))
	r.Decode(&f.wakeReply)
	if r.Err != nil {
		return f, r.Err
	}
	stored := storedPolicy{now: picket.Instant(f.Raw), newest: f.Newest, over: f.Over, file: f.File}
	if len(f.Rows) > 0 {
		stored.row = f.Rows[0]
	}
	f.shown = e.policyNow(name, stored)
	if f.Away {
		f.shown = withError(f.shown, picket.PolicyDiagnostic{Code: string(heartbeat.CodeFilesUnread),
			SourcePath: name + "/HEARTBEAT.md", Message: "no server reads the files of the policies now"})
	}
	if f.shown.Present {
		f.policy, _ = policyRow{Body: f.shown.Body}.parse(f.settings, heartbeat.ModeFile)
		f.policy.Valid = f.policy.Valid && f.shown.Valid
	}
	return f, nil
}

// wall is an instant of store time by the server's own clock, which the windows of policies follow.
func (f wakeFacts) wall(at int64) picket.Instant {
	if at == 0 {
		return 0
	}
	return picket.Instant(f.Raw - (f.Now - at))
}

// session is the session of the wake, or nil.
func (f wakeFacts) session() *heartbeat.WakeSession {
	if f.Row == nil {
		return nil
	}
	row := *f.Row
	row.Draining = false // a wake is refused for that with a reason of its own
	if f.Stopping {
		row.Because = picket.ConversationLost // no prompt is delivered to it any more
	}
	open := row.Open
	if f.UnderWay {
		open--
	}
	s := row.session(picket.Instant(f.Now), picket.Instant(f.Known), f.settings.SessionHealthStaleAfter, open > 0)
	return &heartbeat.WakeSession{Agent: row.Name, Health: s.Health}
}

// decide decides about a wake at an instant, by the server's own clock.
func (f wakeFacts) decide(source picket.WakeSource, at picket.Instant, unmetered bool) heartbeat.Decision {
	return heartbeat.Decide(f.decided(source, at, unmetered))
}

// nextAllowed is when a wake by a person would be allowed, by the server's own clock. Nil: waiting does not help.
func (f wakeFacts) nextAllowed() *picket.Instant {
	at, ok := heartbeat.NextAllowed(f.decided(picket.WakeSourceManual, picket.Instant(f.Raw), false))
	if !ok || f.Stopping {
		return nil
	}
	return &at
}

// decided are the facts by which a wake at an instant is decided.
func (f wakeFacts) decided(source picket.WakeSource, at picket.Instant, unmetered bool) heartbeat.WakeFacts {
	return heartbeat.WakeFacts{
		Now:              at,
		Source:           source,
		Settings:         f.settings,
		Agent:            f.name,
		Policy:           f.policy,
		Conflict:         f.Away || policyFileError(f.shown) != nil,
		Session:          f.session(),
		NamespacePaused:  f.Paused,
		AgentDraining:    f.Row != nil && f.Row.Draining,
		Available:        f.available(),
		Reserved:         f.Unspent > 0,
		NoBudget:         f.limits.none() != "",
		OwnKeys:          f.Row == nil || !f.Row.Metered,
		UnmeteredAllowed: unmetered,
		LastWake:         f.wall(f.Last),
		WakeUnderWay:     f.UnderWay,
		WakesInCycle:     f.InCycle,
		CycleEndsAt:      f.wall((f.Now/wakeCycleMs + 1) * wakeCycleMs),
	}
}

// available is what a wake of the session may spend. One that is not metered spends nothing that is known, so what
// others have reserved does not keep it from being woken.
func (f wakeFacts) available() budget.Money {
	if f.Row != nil && !f.Row.Metered {
		return budget.Money(f.Unspent)
	}
	return budget.Money(min(f.Money, f.Unspent))
}

// wakeCycleMs is how long a cycle of the scheduler lasts. wakes.CYCLE of the scripts is the same.
const wakeCycleMs = 30_000

// agentMessageWakes are the wakes of the last hour that only messages of agents caused.
func (f wakeFacts) agentMessageWakes() int {
	n := 0
	for at := range strings.FieldsSeq(f.ByAgents) {
		if ms, err := strconv.ParseInt(at, 10, 64); err == nil && f.Now-ms < time.Hour.Milliseconds() {
			n++
		}
	}
	return n
}

// queues are the lanes with waiting tasks, and the requests that wait for a lease.
type queues struct {
	Lanes   map[string]string `reply:"lanes"` // the mark of each
	Waiters []string          `reply:"waiters"`
}

// waiting is how many tasks wait in a lane with a mark. Other work has another mark, also if it is as much.
func waiting(mark string) int64 {
	n, _, _ := strings.Cut(mark, " ")
	return store.ParseInt(n)
}

// unattended counts the tasks that the agent of the session may take, on lanes for which nobody waits. marks are those
// of these lanes, in order.
func (f wakeFacts) unattended() (tasks int64, marks []string) {
	req := picket.AcquireRequest{AgentID: f.Row.Agent, Role: f.Role, Capabilities: strings.Split(f.Tags, ",")}
	for lane, mark := range f.Lanes {
		if store.LaneAgent(lane) == "" && covers(req, lane) && !waitedFor(f.Waiters, lane) {
			tasks += waiting(mark)
			marks = append(marks, lane+" "+mark)
		}
	}
	slices.Sort(marks)
	return tasks, marks
}

// schedule says when the scheduler has to wake the session, by the server's own clock. Work is a reason to wake
// it only if it is other work than at the last wake.
func (f wakeFacts) schedule() heartbeat.Schedule {
	changed := f.contextNow() != f.Context
	news := heartbeat.News{Messages: f.People, AgentMessages: f.Agents, AgentMessageWakes: f.agentMessageWakes(),
		SettledSubtasks: f.Settled}
	if changed {
		work, _ := f.unattended()
		news.AnsweredHandoffs, news.UnattendedWork = int(waiting(f.Pinned)), int(work)
	}
	activity := picket.Instant(0)
	if f.Row.Active != nil {
		activity = picket.Instant(*f.Row.Active)
	}
	return heartbeat.Plan(heartbeat.ScheduleFacts{
		Now:           picket.Instant(f.Raw),
		Settings:      f.settings,
		Policy:        f.policy,
		Since:         f.wall(f.Since),
		LastWake:      f.wall(f.Last),
		LastActivity:  activity,
		LastUnchanged: f.wall(f.Unchanged),
		IdleWakes:     f.Idle,
		News:          news,
		Changed:       changed || f.People+f.Agents > 0,
	})
}

// contextNow is a digest of what the agent would find if it looked: which work waits, and how many tasks it holds. It
// is empty if there is nothing.
func (f wakeFacts) contextNow() string {
	work, marks := f.unattended()
	if waiting(f.Pinned) == 0 && f.Held == 0 && work == 0 {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s, %d held, %q", f.Pinned, f.Held, marks))
	return hex.EncodeToString(sum[:])
}

// untilMs is how long it is from now until an instant by the server's own clock, at least 0.
func (f wakeFacts) untilMs(at picket.Instant) int64 {
	return min(max(0, int64(at)-f.Raw), math.MaxInt32)
}
