package sessions

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() { proctest.Scripts["resident"] = residentProgram }

// residentConfig keeps sessions of the program below.
func residentConfig(s Server, stateDir string) Config {
	return Config{Server: s, Incarnation: 7, StateDir: stateDir, Preset: agents.PresetExec,
		Command: proctest.Agent("resident")}
}

// residentProgram does what its prompts say.
func residentProgram() int {
	fmt.Println("a line of log")
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var p promptLine
		if err := json.Unmarshal(in.Bytes(), &p); err != nil {
			return proctest.Failed(err)
		}
		note("prompts", p.PromptID)
		verb, rest, _ := strings.Cut(p.Text, " ")
		switch verb {
		case "pid":
			answer(p, fmt.Sprint(os.Getpid()))
		case "env":
			answer(p, strings.Join(os.Environ(), "\n"))
		case "access":
			held, ok := picket.ParseSessionCapability(p.Capability)
			if !ok {
				answer(p, "none"+p.Capability+p.ContextURL)
				break
			}
			answer(p, held.Secret+" "+p.ContextURL+" "+held.PromptID[7:])
		case "long":
			answer(p, strings.Repeat("é", 50<<10))
		case "tooLong":
			answer(p, strings.Repeat("x", maxLine))
		case "garbage":
			os.Stdout.WriteString("{\"type\":\"answer\"\n\xff\xfe\nnull\n[]\n" + strings.Repeat("x", maxLine+10) + "\n")
			answer(promptLine{PromptID: "prompt_other"}, "to another prompt")
			answer(p, "at last")
		case "invalid":
			fmt.Printf("{\"type\":\"answer\",\"promptId\":%q,\"text\":\"a\xffb\",\"usage\":{\"tokens\":1}}\n", p.PromptID)
		case "endless":
			for {
				if _, err := os.Stdout.WriteString(strings.Repeat("y", 1<<16)); err != nil {
					return 1
				}
			}
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "last":
			fmt.Printf("{\"type\":\"answer\",\"promptId\":%q,\"text\":\"good bye\"}", p.PromptID) // without an end of line
			return 0
		case "ignoreNext": // ends when there is another prompt, which it does not read
			answer(p, "bye")
			_, err := unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, -1)
			return proctest.Failed(err)
		case "child":
			child := exec.Command("sleep", "600")
			if err := child.Start(); err != nil {
				return proctest.Failed(err)
			}
			note(rest, fmt.Sprint(os.Getpid()), fmt.Sprint(child.Process.Pid))
			time.Sleep(10 * time.Minute)
		case "meet": // answers when the other session was prompted as well
			mine, other, _ := strings.Cut(rest, " ")
			note(mine, "here")
			for {
				if _, err := os.Stat(other); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			answer(p, "met")
		default:
			answer(p, p.Text)
		}
	}
	return 0
}

func answer(p promptLine, text string) {
	line, err := json.Marshal(answerLine{Type: "answer", PromptID: p.PromptID, Text: text})
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

// note appends a line to a file, in one write.
func note(file string, words ...string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, strings.Join(words, " "))
}
