package settings

import (
	"log/slog"
	"time"

	"github.com/picket-dev/picket/budget"
)

// General are the keys that a flag or the environment can override.
type General struct {
	URL              string   `yaml:"url" flag:"url" check:"server" doc:"The server that the commands talk to: http://, https:// or unix:PATH. By default it is the one that picket up started last."`
	Listen           []string `yaml:"listen" flag:"listen" default:"127.0.0.1:7070" check:"listen" doc:"The addresses, separated by commas, that picket up and picket serve listen on. Port 0 picks a free one, and unix:PATH is a Unix socket."`
	Data             string   `yaml:"data" flag:"data" default:"$XDG_DATA_HOME/picket" doc:"The directory of picket up. picket serve orchestrator and picket init keep their witness of the store in it."`
	Redis            string   `yaml:"redis" flag:"redis" doc:"The Redis URL. If it is empty, picket up starts its own store."`
	AllowUnsafeRedis bool     `yaml:"allow_unsafe_redis" flag:"allow-unsafe-redis" default:"false" check:"yes_no" doc:"Start on a Redis that can lose what was acknowledged. This is for experiments only."`
	SecretFile       string   `yaml:"secret_file" flag:"secret-file" doc:"The file with the secret that all server processes share."`
	Namespace        string   `yaml:"namespace" flag:"namespace" default:"default" check:"namespaces" doc:"The namespace. picket serve takes several, separated by commas."`
	ProxyURL         string   `yaml:"proxy_url" flag:"proxy-url" check:"url" doc:"The URL of the tool proxy, as agents reach it. By default it is the server itself."`
	AllowedHosts     []string `yaml:"allowed_hosts" check:"hosts" doc:"The names, separated by commas, that requests may be addressed to, in addition to localhost and IP addresses. * means any name."`

	// Store bounds the store that picket up starts.
	Store struct {
		MaxMemory *Memory `yaml:"max_memory" check:"store_memory" doc:"The memory, such as 4GiB, that the store of picket up may use. 0 means any amount. The default is half of the machine's memory."`
	} `yaml:"store"`

	// TLS is the certificate of a server. Both keys belong together.
	TLS struct {
		Cert string `yaml:"cert" flag:"tls-cert" doc:"The certificate file. A server needs it to listen beyond this machine."`
		Key  string `yaml:"key" flag:"tls-key" doc:"The file of the certificate's key."`
	} `yaml:"tls"`

	// Connections bounds the connections to a server process.
	Connections struct {
		Max               int `yaml:"max" default:"0" check:"limit" doc:"The connections that a server accepts at once. 0 means as many as its descriptors allow."`
		Unknown           int `yaml:"unknown" default:"0" check:"limit" doc:"The connections on which no valid credential was shown yet. 0 means 4096, at most half of all."`
		UnknownPerAddress int `yaml:"unknown_per_address" default:"0" check:"limit" doc:"The same from one address. 0 means 1024, at most three quarters of connections.unknown."`
		PerKey            int `yaml:"per_key" default:"0" check:"limit" doc:"The connections that one API key or login uses at once. 0 means half of all."`
		PerLease          int `yaml:"per_lease" default:"0" check:"limit" doc:"The connections that one lease uses at once. 0 means 256."`
	} `yaml:"connections"`

	// Rate bounds the requests to a server process.
	Rate struct {
		PerKey   int `yaml:"per_key" default:"2000" check:"limit" doc:"The requests a second that one API key sends to one server. 0 means any number."`
		PerLease int `yaml:"per_lease" default:"200" check:"limit" doc:"The requests a second that the agent of one lease sends to one server, and as many for its adapter. 0 means any number."`
	} `yaml:"rate"`

	// Quota bounds what one key and one tree of tasks may keep in the store. Its fields are
	// those of orchestrator.Quotas.
	Quota struct {
		Agents        int `yaml:"agents" default:"20000" check:"count" doc:"The agent records of one key. Those of dead and deregistered agents count."`
		MetadataBytes int `yaml:"metadata_bytes" default:"16777216" check:"count" doc:"The bytes of metadata in the agent records of one key."`
		Subtasks      int `yaml:"subtasks" default:"1000" check:"count" doc:"The subtasks below one root task. Those that have ended count."`
		Calls         int `yaml:"calls" default:"50000" check:"count" doc:"The metered calls of one tree of tasks within a day."`
		OpenCalls     int `yaml:"open_calls" default:"256" check:"count" doc:"The metered calls of one task that are under way at once."`
		Answers       int `yaml:"answers" default:"5000" check:"count" doc:"The stored answers of calls with an Idempotency-Key, for one tree within a day."`
		AnswerBytes   int `yaml:"answer_bytes" default:"33554432" check:"count" doc:"The bytes of these answers."`
		ReportBytes   int `yaml:"report_bytes" default:"8388608" check:"count" doc:"The bytes of the progress reports of one task. Older reports are deleted."`
		Reports       int `yaml:"reports" default:"1000" check:"reports" doc:"The progress reports of one task that are kept, 1 to 5000. Older reports are deleted."`
		LogBytes      int `yaml:"log_bytes" default:"1048576" check:"log_bytes" doc:"The bytes of each output stream of a run that the server keeps, 65536 to 4194304. Older output is deleted."`
		Runs          int `yaml:"runs" default:"1000" check:"count" doc:"The runs of one task until a person has to decide on it."`
		BundleBytes   int `yaml:"bundle_bytes" default:"16777216" check:"bundle_bytes" doc:"The bytes of the bundle of a task's branch that the server keeps, 0 to 67108864. 0 means that it keeps none."`
		BundlesBytes  int `yaml:"bundles_bytes" default:"268435456" check:"count" doc:"The bytes of the bundles that one key with its run keys, or one tree of tasks, keeps."`
		MessagesBytes int `yaml:"messages_bytes" default:"67108864" check:"count" doc:"The bytes of the messages that one key with its run keys has sent, or that are in one tree of tasks."`
	} `yaml:"quota"`

	Containment string `yaml:"containment" flag:"containment" check:"containment" doc:"How the processes of an agent are held together: cgroup, subreaper or group. The default is the best that works."`

	// Limits bounds what an agent and its programs take of the machine.
	Limits struct {
		Processes int `yaml:"processes" default:"8192" check:"processes" doc:"The processes and threads that the tree of an agent may have at once. 0 means any number."`
		Exec      struct {
			Processes int     `yaml:"processes" default:"2048" check:"processes" doc:"The same for each program of the tool exec."`
			Memory    *Memory `yaml:"memory" check:"memory" doc:"The memory, such as 4GiB, that each program of the tool exec may use. 0 means any amount. The default is half of the machine's memory."`
		} `yaml:"exec"`
	} `yaml:"limits"`

	Lease struct {
		Window time.Duration `yaml:"window" flag:"lease-window" default:"5m" check:"window" doc:"How long a lease lasts without a renewal, 2s to 24h."`
	} `yaml:"lease"`

	Timeout    time.Duration `yaml:"timeout" check:"timeout" unset:"2h for coding agents" doc:"A run is killed after this time, 1s to 168h. --timeout of a command overrides it. By default a coding agent gets 2h, and any other run has no limit."`
	StallAfter time.Duration `yaml:"stall_after" flag:"stall-after" check:"stall" unset:"15m for coding agents" doc:"A run without a sign of life for this time is nudged, and it is ended after twice this time, 2s to 24h. By default a coding agent gets 15m, and any other run is never nudged."`

	// Launcher is how running agents are reported. The adapter reports them, and agents are not
	// involved.
	Launcher struct {
		HeartbeatInterval time.Duration `yaml:"heartbeat_interval" flag:"launcher-heartbeat" default:"30s" check:"tick" doc:"How often a running agent is reported by the event agent-heartbeat, 10s to 24h."`
		TimeoutWarning    Share         `yaml:"timeout_warning" flag:"timeout-warning" default:"0.8" check:"share" doc:"The share of a run's timeout after which one warning is written, more than 0 and at most 1."`
	} `yaml:"launcher"`

	// Runs is what stays of ended runs on the machine of their adapter.
	Runs struct {
		Keep     time.Duration `yaml:"keep" flag:"keep-runs" default:"168h" check:"duration" doc:"How long the files and the output of an ended run are kept on the machine of its adapter. Workspaces have a time of their own."`
		LogLimit Memory        `yaml:"log_limit" flag:"log-limit" default:"64MiB" check:"memory" doc:"How much of each output stream of a run is kept on the machine of its adapter, such as 64MiB. 0 means any amount."`
	} `yaml:"runs"`

	// Workspace is where agents work.
	Workspace struct {
		Source string        `yaml:"source" flag:"workspace" check:"source" doc:"Where agents work: here, worktree, copy or empty. The default is here for picket run, and a new directory for picket adapter."`
		Resume string        `yaml:"resume" flag:"resume" default:"reuse" check:"resume" doc:"What the next run of a task begins with: reuse, copy or fresh."`
		Keep   time.Duration `yaml:"keep" flag:"keep" default:"0s" check:"keep" doc:"How long a workspace is kept at least after its run. The server may keep it longer."`
		Remote string        `yaml:"remote" flag:"workspace-remote" check:"remote" doc:"The git repository to which the branches of worktrees are pushed, so that another machine can continue them."`
	} `yaml:"workspace"`

	// Retention is how long the store keeps what has ended, and how long adapters have to keep
	// workspaces.
	Retention struct {
		Tasks       time.Duration `yaml:"tasks" default:"720h" check:"duration" doc:"How long closed tasks are kept."`
		Events      time.Duration `yaml:"events" default:"168h" check:"duration" doc:"How long events are kept."`
		MaxEvents   int64         `yaml:"max_events" default:"1000000" check:"count" doc:"How many events are kept at most."`
		AuditAge    time.Duration `yaml:"audit_age" default:"9600h" check:"duration" doc:"How long events of the audit log are kept."`
		AuditEvents int64         `yaml:"audit_events" default:"1000000" check:"count" doc:"How many events of the audit log are kept at most."`
		Workspaces  struct {
			Failed  time.Duration `yaml:"failed" default:"168h" check:"duration" doc:"How long the workspace of a run that failed or expired is kept after the end of the run."`
			Decided time.Duration `yaml:"decided" default:"24h" check:"duration" doc:"How long any other workspace is kept after its task was decided."`
		} `yaml:"workspaces"`
	} `yaml:"retention"`

	// Budget is the money of a day and of a task.
	Budget struct {
		House struct {
			USD    *budget.Money `yaml:"usd" check:"dollars" doc:"The dollars that all tasks of a UTC day are given together. By default there is no limit."`
			Tokens *int64        `yaml:"tokens" check:"tokens" doc:"The tokens that all tasks of a UTC day are given together. By default there is no limit."`
		} `yaml:"house"`
		Default struct {
			USD    budget.Money `yaml:"usd" default:"1" check:"dollars" doc:"The dollars of a task that names no envelope."`
			Tokens int64        `yaml:"tokens" default:"1000000" check:"tokens" doc:"The tokens of a task that names no envelope."`
		} `yaml:"default"`
	} `yaml:"budget"`

	PublicURL string `yaml:"public_url" flag:"public-url" check:"public_url" doc:"The base URL, such as https://agents.example.com/picket, by which people and A2A clients reach this server. Messages link to it if it is set. By default agent endpoints are below the address that the server listens on."`

	// A2A is how A2A clients reach the agents that have an endpoint.
	A2A struct {
		PublicCards bool `yaml:"public_cards" default:"false" check:"yes_no" doc:"Whether the agent cards of pools can be read without a key. They then show only name, description, skills and security schemes."`
		Push        bool `yaml:"push" default:"true" check:"yes_no" doc:"Whether A2A clients can have push notifications of their tasks sent to https addresses that they name. notify.allow opens addresses that are not public."`
	} `yaml:"a2a"`

	Console struct {
		HostPerLogin bool `yaml:"host_per_login" default:"true" check:"yes_no" doc:"Give each login to the console its own host name below localhost. false means one cookie, which the browser sends to every port of the host."`
	} `yaml:"console"`

	Notify struct {
		RemindAfter time.Duration `yaml:"remind_after" check:"remind" doc:"Remind people once of each hand-off and review that has waited for this time, 1s to 8760h. By default there is no reminder."`
		Allow       []string      `yaml:"allow" check:"destinations" doc:"The internal addresses that webhooks and push notifications may use, as host:port, separated by commas."`
		Desktop     bool          `yaml:"desktop" default:"true" check:"yes_no" doc:"Show notices on the desktop of anyone who waits for a task with picket run."`
	} `yaml:"notify"`

	Wake Wake `yaml:"wake"`

	Log struct {
		Level slog.Level `yaml:"level" flag:"log-level" default:"info" check:"level" doc:"The level of the log: debug, info, warn or error."`
	} `yaml:"log"`
}
