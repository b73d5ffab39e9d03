package invariants

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const missingMessage = "message_01JZZZZZZZZZZZZZZZZZZZZZZZ" // has no record

// messageFixture is the part of a scene that is about messages. All are of one sender, who has sent
// no others.
type messageFixture struct {
	sender  string
	unread  string // to leased
	second  string // to leased, after unread
	toAgent string // to m1
}

// addMessages sends messages that nobody reads, and one for people, which is in no inbox.
func (s *inspectFixture) addMessages() messageFixture {
	s.t.Helper()
	m := messageFixture{sender: s.MustCreateKey(s.t, picket.ScopeOperator)}
	by := picket.Caller{Actor: m.sender, Operator: true, Key: m.sender}
	tell := func(to string) string {
		sent, err := s.Tell(s.Ctx, by, to, picket.MessageRequest{Body: "hello"})
		kit.OK(s.t, err)
		return sent.MessageID
	}
	m.unread, m.second, m.toAgent = tell(s.leased.TaskID), tell(s.leased.TaskID), tell("m1")
	_, err := s.SendMessage(s.Ctx, s.holder, "", picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: "hi"}})
	kit.OK(s.t, err)
	return m
}

// MessageDamages are those of messages and inboxes.
var MessageDamages = []damage{
	{Kind: "message_damaged", what: "a field is gone", Plant: func(s *inspectFixture) {
		s.rawCommand("HDEL", "message:"+s.unread, "number")
	}},
	{Kind: "entry_orphaned", what: "message", Plant: rawDamage("ZADD", "sent", farScore, missingMessage)},
	{Kind: "message_uncounted", what: "of a key", Plant: func(s *inspectFixture) {
		s.rawCommand("DEL", "message-bytes:"+s.sender)
	}},
	{Kind: "message_uncounted", what: "of a tree", Plant: func(s *inspectFixture) {
		s.rawCommand("SET", "message-bytes:"+s.leased.TaskID, 1)
	}},
	{
		Kind: "inbox_missing",
		what: "never delivered",
		also: []string{"inbox_bytes"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("ZREM", "unread:"+s.leased.TaskID, s.unread)
		},
	},
	{Kind: "inbox_extra", what: "of nobody", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "unread:"+s.leased.TaskID, 1, missingMessage)
	}},
	{Kind: "inbox_extra", what: "to another", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "unread:m1", 1, s.unread)
	}},
	{Kind: "inbox_extra", what: "was read", also: []string{"inbox_bytes"}, Plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "message:"+s.second, "read", 1)
	}},
	{
		Kind: "inbox_extra",
		what: "its record is lost",
		also: []string{"inbox_bytes", "entry_orphaned"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("DEL", "message:"+s.second)
		},
	},
	{Kind: "inbox_score", what: "last of all", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "unread:"+s.leased.TaskID, farScore, s.unread)
	}},
	{Kind: "inbox_bytes", what: "always full", Plant: rawDamage("HSET", "inbox:m1", "bytes", 8388608)},
	{Kind: "inbox_bytes", what: "of no message", Plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "inbox:"+s.head.TaskID, "bytes", 7)
	}},
	{Kind: "message_score", what: "last of all", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "messages:"+s.leased.TaskID, farScore, s.unread)
	}},
	{Kind: "sent_missing", what: "never deleted", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "sent", s.unread)
	}},
}
