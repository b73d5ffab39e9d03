package rig

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/orchestrator/lua"
)

// recordKey matches the keys of records that the store keeps as one string each.
var recordKey = regexp.MustCompile(`^pk:\{[^}]*\}:(task|run|env):`)

// IsRecord reports whether a key is that of a record which the store keeps as one string.
func IsRecord(key string) bool { return recordKey.MatchString(key) }

// ReadRecord reads the fields of a record that is one string.
func ReadRecord(ctx context.Context, c redis.UniversalClient, key string) (map[string]string, error) {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	script := scriptFor(ctx, cmd)
	if err := c.Process(ctx, script); err != nil {
		return nil, err
	}
	err := answer(cmd, script)
	return cmd.Val(), err
}

// Hashes lets a client of a test use the commands of hashes for all records, also for those that are one
// string each. It returns the client.
func Hashes[C redis.UniversalClient](client C) C {
	client.AddHook(recordHook{})
	return client
}

// RecordReader is Lua with the local function fields_of(kind, text), which returns the fields of a record by name. kind
// is the beginning of its key, without the colon. text is its string, of format 2 or 3. packer packs and unpacks
// values; a store in memory has no cmsgpack.
var RecordReader = recordReader()

func recordReader() string {
	var names strings.Builder
	for _, r := range lua.Records {
		fmt.Fprintf(&names, "  %s = { '%s' },\n", r.Kind, strings.Join(r.Fields, "', '"))
	}
	return `
local found, library = pcall(function() return cmsgpack end)
local packer = found and library or { pack = cjson.encode, unpack = cjson.decode }
local names = {
` + names.String() + `}
local function fields_of(kind, text)
  local values, fields = { packer.unpack(text) }, {}
  if #values == 1 then values = values[1] end -- fields by name, or a list in JSON
  if values[1] == nil then return values end
  for i, name in ipairs(names[kind]) do fields[name] = values[i] or nil end
  for name, value in pairs(values[#values] or {}) do fields[name] = value end
  return fields
end
`
}

// onRecord does one command of hashes on a record. In a store of format 1 it is a hash. What it changes is a string of
// format 2 afterwards.
var onRecord = RecordReader + `
if redis.call('TYPE', KEYS[1]).ok == 'hash' then return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2)) end
local text, command, reply = redis.call('GET', KEYS[1]), ARGV[1], 0
local r = text and fields_of(string.match(KEYS[1], '}:(%a+):'), text) or {}
if command == 'hget' then return r[ARGV[2]] or false end
if command == 'hmget' or command == 'hgetall' then
  reply = {}
  for i = 2, #ARGV do reply[i - 1] = r[ARGV[i]] or false end
  if command == 'hgetall' then
    for field, value in pairs(r) do reply[#reply + 1], reply[#reply + 2] = field, value end
  end
  return reply
end
if command == 'hset' then
  for i = 2, #ARGV, 2 do
    if not r[ARGV[i]] then reply = reply + 1 end
    r[ARGV[i]] = ARGV[i + 1]
  end
elseif command == 'hdel' then
  for i = 2, #ARGV do
    if r[ARGV[i]] then reply = reply + 1 end
    r[ARGV[i]] = nil
  end
else
  reply = tonumber(r[ARGV[2]] or '0') + tonumber(ARGV[3])
  r[ARGV[2]] = string.format('%d', reply)
end
redis.call('SET', KEYS[1], packer.pack(r))
return reply
`

var hashCommands = map[string]bool{"hget": true, "hmget": true, "hgetall": true, "hset": true, "hdel": true,
	"hincrby": true}

type recordHook struct{}

func (recordHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (recordHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := scriptFor(ctx, cmd)
		if script == nil {
			return next(ctx, cmd)
		}
		if err := next(ctx, script); err != nil {
			cmd.SetErr(err)
			return err
		}
		return answer(cmd, script)
	}
}

func (recordHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		sent, scripts := make([]redis.Cmder, len(commands)), make([]*redis.Cmd, len(commands))
		for i, cmd := range commands {
			sent[i] = cmd
			if scripts[i] = scriptFor(ctx, cmd); scripts[i] != nil {
				sent[i] = scripts[i]
			}
		}
		err := next(ctx, sent)
		for i, script := range scripts {
			if script != nil {
				_ = answer(commands[i], script) // the command has it
			}
		}
		return err
	}
}

// scriptFor returns the command that does what cmd does on a record, or nil if cmd needs none.
func scriptFor(ctx context.Context, cmd redis.Cmder) *redis.Cmd {
	args := cmd.Args()
	if len(args) < 2 || !hashCommands[cmd.Name()] || !IsRecord(fmt.Sprint(args[1])) {
		return nil
	}
	key := fmt.Sprint(args[1])
	return redis.NewCmd(ctx, append([]any{"eval", onRecord, 1, key, cmd.Name()}, args[2:]...)...)
}

// answer gives a command the reply of its script.
func answer(cmd redis.Cmder, script *redis.Cmd) error {
	reply, err := script.Result()
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	switch c := cmd.(type) {
	case *redis.StringCmd:
		c.SetVal(reply.(string))
	case *redis.IntCmd:
		c.SetVal(reply.(int64))
	case *redis.SliceCmd:
		c.SetVal(reply.([]any))
	case *redis.MapStringStringCmd:
		flat, fields := reply.([]any), map[string]string{}
		for i := 0; i < len(flat); i += 2 {
			fields[flat[i].(string)] = flat[i+1].(string)
		}
		c.SetVal(fields)
	case *redis.Cmd:
		c.SetVal(reply)
	default:
		return fmt.Errorf("a reply of %s is a %T", cmd.Name(), cmd)
	}
	return nil
}
