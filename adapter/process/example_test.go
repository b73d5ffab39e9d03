//go:build unix

package process_test

import (
	"context"
	"fmt"
	"os"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// A command is started with the variables of its lease and with the usual ones of the
// adapter, but with no other: a credential of the adapter does not reach it.
func ExampleCommandLauncher() {
	os.Setenv("MY_API_KEY", "secret")
	defer os.Unsetenv("MY_API_KEY")
	launcher := process.CommandLauncher{
		Command:     []string{"sh", "-c", `echo "$PICKET_TASK_ID, key: ${MY_API_KEY-none}"; exit 3`},
		Containment: picket.ContainmentGroup,
	}
	p, err := launcher.Launch(context.Background(), process.Job{
		Dir:    ".",
		Env:    []string{"PICKET_TASK_ID=task_1"},
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-p.Done()
	fmt.Println("exit code", p.Exit().Code)
	// Output:
	// task_1, key: none
	// exit code 3
}

// firstWrite is closed when something is written.
type firstWrite chan struct{}

func (w firstWrite) Write(b []byte) (int, error) {
	close(w)
	return len(b), nil
}

// Kill ends the whole tree. Done is closed once nothing of it is left: here the shell
// and the process that it has started.
func ExampleProcess() {
	started := make(firstWrite)
	launcher := process.CommandLauncher{
		Command:     []string{"sh", "-c", "sleep 600 & echo started; wait"},
		Containment: picket.ContainmentGroup,
	}
	p, err := launcher.Launch(context.Background(), process.Job{Dir: ".", Stdout: started, Stderr: os.Stderr})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-started
	select {
	case <-p.Done():
		fmt.Println("it has ended")
	default:
		fmt.Println("it runs, held together by a", p.Containment())
	}
	p.Kill()
	<-p.Done()
	fmt.Println("killed by", p.Exit().Signal)
	// Output:
	// it runs, held together by a group
	// killed by SIGKILL
}
