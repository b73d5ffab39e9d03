package orchestrator_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// keptBytes is what is counted of the prompts of kit.Operator that have ended: of each, and of all.
func (f *sessionFixture) keptBytes(t *testing.T) (each map[string]string, total int64) {
	t.Helper()
	each = f.Raw.HGetAll(f.Ctx, f.keptKey("bytes")).Val()
	total, err := strconv.ParseInt(each["total"], 10, 64)
	kit.OK(t, err)
	delete(each, "total")
	return each, total
}

func (f *sessionFixture) keptKey(of string) string {
	return "pk:{default}:kept-" + of + ":" + kit.Operator.Actor
}

// All sessions that a key has registered keep so many bytes of prompts and answers. The oldest are deleted first, and a
// session that has ended goes with its last prompt.
func TestTheBytesOfPromptsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		const most = 64 << 20
		f := fx.withSession(t)
		answered := func(words string, bytes int) string {
			id := f.prompt(t, words)
			kit.OK(t, f.result(id, picket.PromptAnswered, 0, strings.Repeat("x", bytes)))
			f.JumpStoreTime(t, time.Second)
			return id
		}
		kept := func(id string) bool {
			_, err := f.SessionPrompt(f.Ctx, f.id, id, 0, 0)
			return err == nil
		}
		one, two := answered("one", 1000), answered("two", 2000)
		each, total := f.keptBytes(t)
		if len(each) != 2 || each[one] != "1515" || each[two] != "2515" || total != 1515+2515 {
			t.Errorf("counted is %v, %d in all", each, total)
		}
		first := f.id
		f.id = newSessionID()
		kit.OK(t, f.report("a1", f.n, idleSession(f.id))) // the first one has ended
		three := answered("three", 0)
		kit.OK(t, f.Raw.HSet(f.Ctx, f.keptKey("bytes"), "total", most-10).Err())
		four := answered("four", 500) // 1016 bytes: the first one makes room
		if _, total := f.keptBytes(t); total != most-10+1016-1515 {
			t.Errorf("%d bytes are kept", total)
		}
		second := f.id
		f.id = first
		if kept(one) || !kept(two) {
			t.Error("not the oldest prompt was deleted")
		}
		kit.OK(t, f.Raw.HSet(f.Ctx, f.keptKey("bytes"), "total", most-10).Err())
		f.id = second
		five := answered("five", 0)
		if _, err := f.AgentSession(f.Ctx, first); picket.CodeOf(err) != picket.CodeNotFound {
			t.Errorf("a session without prompts outlives its end: %v", err)
		}
		if !kept(three) || !kept(four) || !kept(five) {
			t.Error("more prompts were deleted than necessary")
		}

		kit.OK(t, f.Raw.HSet(f.Ctx, f.keptKey("bytes"), "total", 3*most).Err()) // a count that is wrong
		six := answered("six", 0)
		if !kept(six) || kept(five) {
			t.Error("a wrong count deletes the prompt that has just ended, or nothing")
		}
		if _, total := f.keptBytes(t); total != 515 {
			t.Errorf("the count is %d after it was wrong", total)
		}
	})
}

// What is forgotten after a week is not counted any more.
func TestForgottenPromptsAreNotCounted(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		kit.OK(t, f.result(f.prompt(t, "one"), picket.PromptAnswered, 0, ""))
		f.JumpStoreTime(t, 7*24*time.Hour+time.Second)
		_, err := f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
		f.n, f.id = f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		id := f.prompt(t, "two")
		kit.OK(t, f.result(id, picket.PromptAnswered, 0, ""))
		if each, total := f.keptBytes(t); len(each) != 1 || each[id] != "515" || total != 515 {
			t.Errorf("counted is %v, %d in all", each, total)
		}
		if n := f.Raw.ZCard(f.Ctx, f.keptKey("prompts")).Val(); n != 1 {
			t.Errorf("%d prompts are listed", n)
		}
	})
}
