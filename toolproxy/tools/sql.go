package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// Database is a Postgres database that the tool sql reaches.
type Database struct {
	// URL is how to connect, with the role that agents act as. Required.
	URL picket.Secret
	// Marks is the table of high-water marks, such as fence.marks. [FenceSQL] makes
	// it. Defaults to public.picket_fence.
	Marks string
	// Timeout bounds a call. Defaults to 30 s; at most picket.MaxExternalCall
	// seconds.
	Timeout time.Duration
}

// Bounds of a statement and of its answer.
const (
	maxStatement = 64 << 10
	maxSQLArgs   = 100
	maxSQLRows   = 1000
	maxSQLBytes  = 256 << 10
	maxSQLPacket = 4 << 20 // one row, or one word of the server: it is read whole
)

// sqlSource is the tool sql.
type sqlSource struct {
	proxy     *toolproxy.Proxy
	databases map[string]database
	tool      toolproxy.Tool
}

// database is a [Database] that can be connected to.
type database struct {
	name    string
	config  *pgconn.Config
	marks   fenceMarks
	timeout time.Duration
}

// tableNamePattern leaves room for the names of what belongs to the table.
var tableNamePattern = lazyregexp.New(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,54}$`)

// marksTable is the table of marks of a database, with its schema if it was named.
func (d Database) marksTable(name string) (string, error) {
	table := cmp.Or(d.Marks, "picket_fence")
	if !tableNamePattern().MatchString(table) {
		return "",
			fmt.Errorf("toolproxy: %q of the database %s is not a table name: at most 55 lower-case letters, digits or _", table, name)
	}
	return table, nil
}

// SQL is the part that offers the tool sql for these databases, by name. The sealer
// derives the keys of the fence marks; it is the one of [FenceSQL]. An URL or a table
// name that cannot be read is an error.
func SQL(sealer *seal.Sealer, databases map[string]Database) toolproxy.Part {
	return func(p *toolproxy.Proxy) error {
		s, err := newSQLSource(p, sealer, databases)
		if err != nil {
			return err
		}
		p.AddSource(s)
		return nil
	}
}

func newSQLSource(p *toolproxy.Proxy, sealer *seal.Sealer, configured map[string]Database) (*sqlSource, error) {
	s := &sqlSource{proxy: p, databases: map[string]database{}, tool: listing("sql")}
	for name, d := range configured {
		config, err := pgconn.ParseConfig(d.URL.Reveal())
		if err != nil {
			return nil,
				fmt.Errorf("toolproxy: the URL of the database %s cannot be read (it is postgres://user:password@host/name)", name)
		}
		table, err := d.marksTable(name)
		if err != nil {
			return nil, err
		}
		config.RuntimeParams["application_name"] = "picket"
		config.MaxProtocolMessageBodyLen = maxSQLPacket
		s.databases[name] = database{
			name:    name,
			config:  config,
			marks:   newFenceMarks(sealer, name, table),
			timeout: min(cmp.Or(d.Timeout, 30*time.Second), picket.MaxExternalCall*time.Second),
		}
	}
	schema, err := withEnum(s.tool.InputSchema, "database", s.names())
	s.tool.InputSchema = schema
	return s, err
}

// withEnum narrows a property of a schema to these values.
func withEnum(schema jsontext.Value, property string, values []string) (jsontext.Value, error) {
	var parsed map[string]any
	if err := json.Unmarshal(schema, &parsed); err != nil {
		return nil, err
	}
	parsed["properties"].(map[string]any)[property].(map[string]any)["enum"] = values
	return toolproxy.EncodeJSON(parsed)
}

func (s *sqlSource) names() []string { return slices.Sorted(maps.Keys(s.databases)) }

func (s *sqlSource) Tools(context.Context, toolproxy.ExecQueue, picket.LeaseCredential) ([]toolproxy.Tool, error) {
	if t, ok := s.proxy.WithPrice(s.tool); ok && len(s.databases) > 0 {
		return []toolproxy.Tool{t}, nil
	}
	return nil, nil
}

// sqlArgs are the arguments of sql.
type sqlArgs struct {
	Database  string           `json:"database"`
	Statement string           `json:"statement"`
	Args      []jsontext.Value `json:"args"`
	// ReadOnly runs the statement in a read-only transaction. It then needs no
	// high-water mark, and the next holder of the task does not wait for it.
	ReadOnly       bool `json:"readOnly"`
	TimeoutSeconds *int `json:"timeoutSeconds"`
}

func (s *sqlSource) Call(ctx context.Context, c toolproxy.Call) (jsontext.Value, bool, error) {
	if c.Name != s.tool.Name || len(s.databases) == 0 {
		return nil, false, nil
	}
	a, d, err := s.args(c)
	if err != nil {
		return nil, true, err
	}
	canonical, err := toolproxy.EncodeJSON(a)
	if err != nil {
		return nil, true, err
	}
	m := toolproxy.MeteredCall{Args: canonical, Effects: picket.EffectsExternal, Timeout: d.timeout}
	if a.ReadOnly {
		m.Effects = picket.EffectsNone
	}
	if a.TimeoutSeconds != nil {
		m.Timeout = min(m.Timeout, time.Duration(*a.TimeoutSeconds)*time.Second)
	}
	m.Dispatch = func(ctx context.Context, r picket.Reservation) (toolproxy.DispatchResult, error) {
		return d.dispatch(ctx, a,
			writerIdentity{task: c.Held.Namespace + "/" + r.TaskID, lease: r.RunID, token: r.Token})
	}
	answer, err := s.proxy.MeteredAnswer(ctx, c, m)
	return answer, true, err
}

func (s *sqlSource) args(c toolproxy.Call) (a sqlArgs, d database, err error) {
	if a, err = toolproxy.DecodeArgs[sqlArgs](c.Args); err != nil {
		return a, d, err
	}
	d, known := s.databases[a.Database]
	switch {
	case !known:
		return a, d, picket.Invalid("/database", "Send one of: "+strings.Join(s.names(), ", ")+".",
			"there is no database %q", web.Shortened(a.Database))
	case strings.TrimSpace(a.Statement) == "":
		return a, d, picket.Invalid("/statement", "Send one SQL statement.", "statement is required")
	case len(a.Statement) > maxStatement:
		return a, d, picket.Refuse(picket.CodeTooLarge, "Send the values as args.",
			"the statement has %d bytes, at most %d are allowed", len(a.Statement), maxStatement).
			With("field", "/statement")
	case strings.ContainsRune(a.Statement, 0):
		return a, d, picket.Invalid("/statement", "Send text without zero bytes.", "the statement has a zero byte")
	case len(a.Args) > maxSQLArgs:
		return a, d, picket.Refuse(picket.CodeTooLarge, "Send fewer args; a JSON array fits into one.",
			"there are %d args, at most %d are allowed", len(a.Args), maxSQLArgs).With("field", "/args")
	case a.TimeoutSeconds != nil && (*a.TimeoutSeconds < 1 || *a.TimeoutSeconds > picket.MaxExternalCall):
		return a, d, picket.Invalid("/timeoutSeconds", "Send 1 to 120, or leave it out.", "timeoutSeconds is %d",
			*a.TimeoutSeconds)
	}
	return a, d, d.checkStatement(a.Statement)
}

// controlKeywords begin statements that would act on the transaction or the connection they are
// called in. The server takes one statement at a time, so nothing can follow them either. This
// check refuses them before they cost anything.
var controlKeywords = []string{"begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release",
	"prepare", "deallocate", "execute", "set", "reset", "discard", "copy", "listen", "unlisten", "lock", "load"}

func (d database) checkStatement(statement string) error {
	if word := firstWord(statement); slices.Contains(controlKeywords, word) {
		return picket.Invalid("/statement",
			"Send one statement that reads or writes data; each call is a transaction of its own.",
			"%s is not available here", strings.ToUpper(word))
	}
	if _, table, ok := strings.Cut("."+string(d.marks.table), "."); ok &&
		strings.Contains(strings.ToLower(statement), table[strings.LastIndex(table, ".")+1:]) {
		return picket.Invalid("/statement", "Leave that table alone.",
			"the table of high-water marks is not for agents")
	}
	return nil
}

var leadingPattern = lazyregexp.New(`^(?:\s+|--[^\n]*\n|/\*(?s:.*?)\*/|[(;])+`)

// firstWord is the verb of a statement, in lower case.
func firstWord(statement string) string {
	rest := statement[len(leadingPattern().FindString(statement)):]
	end := strings.IndexFunc(rest,
		func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') })
	if end < 0 {
		end = len(rest)
	}
	return strings.ToLower(rest[:end])
}

// statementError is the answer to a statement that the database refused; its
// transaction was rolled back.
func statementError(err error) (jsontext.Value, bool) {
	var pg *pgconn.PgError
	// the connection ended, nothing was committed
	if large := (*pgproto3.ExceededMaxBodyLenErr)(nil); errors.As(err, &large) {
		pg = &pgconn.PgError{
			Code:    "54000",
			Message: fmt.Sprintf("a row of the answer has more than %d bytes", maxSQLPacket),
			Hint:    "Select parts of it.",
		}
	} else if !errors.As(err, &pg) {
		return nil, false
	}
	answer, err := toolproxy.EncodeJSON(map[string]any{
		"error": map[string]any{
			"sqlstate": pg.Code, "message": pg.Message, "detail": pg.Detail, "hint": pg.Hint, "position": pg.Position},
		"rolledBack": true,
	})
	return answer, err == nil
}
