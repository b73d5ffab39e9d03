package tools

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
)

// dispatch runs a statement on a connection of its own: whatever it does to its
// session ends with it.
func (d database) dispatch(ctx context.Context, a sqlArgs, by writerIdentity) (toolproxy.DispatchResult, error) {
	began := time.Now()
	conn, err := pgconn.ConnectConfig(ctx, d.config)
	if err != nil {
		return toolproxy.DispatchResult{},
			toolproxy.NotSent(picket.Refuse(picket.CodeUpstream, "Try again in a while; nothing was done.",
				"the database %s does not answer", a.Database).WithCause(err))
	}
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(after)
	}()
	answer, size, err := d.transaction(ctx, conn, a, by)
	if said, ok := statementError(err); ok {
		return toolproxy.DispatchResult{
			Result: picket.RawJSON(said),
			Failed: true,
			Used:   budget.Usage{Millis: time.Since(began).Milliseconds()},
			Detail: "refused by the database",
		}, nil
	}
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	return toolproxy.DispatchResult{
		Result: picket.RawJSON(answer),
		Used:   budget.Usage{Bytes: size, Millis: time.Since(began).Milliseconds()},
	}, nil
}

func (d database) transaction(ctx context.Context, conn *pgconn.PgConn, a sqlArgs,
	by writerIdentity) (jsontext.Value, int64, error) {
	if err := d.begin(ctx, conn, a.ReadOnly); err != nil {
		return nil, 0, err
	}
	if !a.ReadOnly {
		if err := d.raiseMark(ctx, conn, by); err != nil {
			return nil, 0, err
		}
	}
	table, err := runStatement(ctx, conn, a)
	if err != nil {
		return nil, 0, err
	}
	if conn.TxStatus() != 'T' {
		return nil, 0, picket.Invalid("/statement", "Send a statement that leaves its transaction alone.",
			"the statement has ended its transaction")
	}
	answer, err := toolproxy.EncodeJSON(table)
	if err != nil || table.cut {
		return answer, table.size, err
	}
	return answer, table.size, execSQL(ctx, conn, "COMMIT")
}

// begin opens the transaction. The server ends it if this process does not return to it.
func (d database) begin(ctx context.Context, conn *pgconn.PgConn, readOnly bool) error {
	mode := "READ WRITE"
	if readOnly {
		mode = "READ ONLY"
	}
	left := d.timeout
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), time.Millisecond)
	}
	ms := strconv.FormatInt(left.Milliseconds()+1, 10)
	return execSQL(ctx, conn,
		"BEGIN ISOLATION LEVEL READ COMMITTED "+mode+"; SET LOCAL statement_timeout = "+ms+
			"; SET LOCAL lock_timeout = "+ms+"; SET LOCAL idle_in_transaction_session_timeout = "+ms)
}

func execSQL(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	_, err := conn.Exec(ctx, sql).ReadAll()
	return err
}

// raiseMark raises the task's mark in the open transaction.
func (d database) raiseMark(ctx context.Context, conn *pgconn.PgConn, by writerIdentity) error {
	done := conn.ExecParams(ctx, d.marks.callSQL(), d.marks.raiseArgs(by), nil, nil, nil).Read()
	if pg, ok := errors.AsType[*pgconn.PgError](done.Err); ok {
		return toolproxy.NotSent(d.cannotRaiseMark(pg.Message).With("sqlstate", pg.Code))
	}
	if done.Err != nil {
		return done.Err
	}
	said := ""
	if len(done.Rows) == 1 {
		said = string(done.Rows[0][0])
	}
	switch said {
	case markRaised:
		return nil
	case markStale:
		return toolproxy.NotSent(picket.Refuse(picket.CodeStaleFence,
			"Stop writing and exit: another run has written for this task since.",
			"token %d is not above the mark in the database", by.token).With("presented", by.token))
	case markForged:
		return toolproxy.NotSent(d.cannotRaiseMark("the database does not have the key of this server"))
	}
	return toolproxy.NotSent(d.cannotRaiseMark("the function that raises marks returned an unknown answer"))
}

// cannotRaiseMark refuses a write that the fence of the database cannot check.
func (d database) cannotRaiseMark(why string) *picket.Error {
	return picket.Refuse(picket.CodeUpstream,
		"Ask an operator to run the SQL that \"picket fence-sql "+d.name+
			" --role ROLE\" prints, as a role that agents do not have. Reading (readOnly) needs no marks.",
		"the high-water mark in %s cannot be raised: %s", d.marks.table, why)
}

// sqlTable is the answer of sql.
type sqlTable struct {
	Command   string             `json:"command"` // such as INSERT 0 1; empty when the answer was cut
	RowCount  int64              `json:"rowCount"`
	Columns   []string           `json:"columns"`
	Rows      [][]jsontext.Value `json:"rows"`
	Truncated bool               `json:"truncated"` // there were more rows

	size int64
	cut  bool // the rest was not waited for
}

// runStatement runs the one statement and reads rows up to the bounds.
func runStatement(ctx context.Context, conn *pgconn.PgConn, a sqlArgs) (out sqlTable, err error) {
	args, err := encodeArgs(a.Args)
	if err != nil {
		return out, toolproxy.NotSent(err)
	}
	reader := conn.ExecParams(ctx, a.Statement, args, nil, nil, nil)
	out = sqlTable{Columns: []string{}, Rows: [][]jsontext.Value{}}
	for _, f := range reader.FieldDescriptions() {
		out.Columns = append(out.Columns, f.Name)
	}
	for reader.NextRow() {
		var row []jsontext.Value
		size := int64(0)
		for i, v := range reader.Values() {
			cell, err := cellJSON(reader.FieldDescriptions()[i].DataTypeOID, v)
			if err != nil {
				return out, err
			}
			size += int64(len(cell))
			row = append(row, cell)
		}
		if out.Truncated = out.Truncated || len(out.Rows) == maxSQLRows || out.size+size > maxSQLBytes; out.Truncated {
			if a.ReadOnly { // nothing to commit: the connection is dropped
				out.cut, out.RowCount = true, int64(len(out.Rows))
				return out, nil
			}
			continue
		}
		out.size += size
		out.Rows = append(out.Rows, row)
	}
	tag, err := reader.Close()
	out.Command, out.RowCount = tag.String(), tag.RowsAffected()
	return out, err
}

// encodeArgs are arguments as Postgres reads them; it knows the types it expects.
func encodeArgs(args []jsontext.Value) (out [][]byte, err error) {
	for i, raw := range args {
		switch raw.Kind() {
		case 'n':
			out = append(out, nil)
		case '"':
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, err
			}
			if strings.ContainsRune(s, 0) {
				return nil, picket.Invalid("/args/"+strconv.Itoa(i), "Send text without zero bytes.",
					"the argument has a zero byte")
			}
			out = append(out, []byte(s))
		default:
			out = append(out, []byte(raw))
		}
	}
	return out, nil
}

// cellJSON writes a cell as JSON: numbers with all their digits, JSON as it is,
// everything else as Postgres prints it.
func cellJSON(oid uint32, v []byte) (jsontext.Value, error) {
	const boolean, int8, int2, int4, jsonType, objectID, float4, float8, numeric, jsonb = 16, 20, 21, 23, 114, 26, 700,
		701, 1700, 3802
	if v == nil {
		return jsontext.Value("null"), nil
	}
	raw := jsontext.Value(append([]byte{}, v...))
	switch oid {
	case boolean:
		return toolproxy.EncodeJSON(string(v) == "t")
	case int2, int4, int8, objectID, float4, float8, numeric, jsonType, jsonb:
		if raw.IsValid() { // NaN and Infinity are not
			return raw, nil
		}
	}
	return toolproxy.EncodeJSON(strings.ToValidUTF8(string(v), "�"))
}
