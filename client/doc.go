// Package client is the Go client of a Picket orchestrator: for programs that submit
// tasks, decide about results, answer questions, or work on tasks themselves.
//
//	c := client.New("http://127.0.0.1:7070", key, client.Options{})
//	task, err := c.Tasks.Create(ctx, picket.TaskSpec{Title: "fix the flaky test"})
//
// A server on a Unix socket has a URL such as unix:/run/picket/api.sock.
//
// Every method takes and returns the types of the root package. An error is a
// *[picket.Error] with a code, a message, a remedy and facts; compare it with a code by
// [errors.Is]. A change whose answer is lost is sent again with the same idempotency key,
// so that it is made once.
//
// A program that works on tasks uses the package adapter, which leases tasks, starts
// agents and renews leases with this client.
package client
