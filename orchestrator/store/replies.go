package store

import (
	"fmt"
	"math"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// UnpackReplies reads the reply of a batch, which is one string of MessagePack. The answers are as Redis would have
// sent them: a map is the list of its names and values, a truth is 1, and false is nil.
func UnpackReplies(reply any) ([]any, error) {
	text, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("the reply of a batch is a %T, not a string", reply)
	}
	d := msgpack.GetDecoder()
	defer msgpack.PutDecoder(d)
	d.Reset(strings.NewReader(text))
	v, err := unpackValue(d)
	if err != nil {
		return nil, fmt.Errorf("read the reply of a batch: %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("the reply of a batch has a %T, not a list", v)
	}
	return list, nil
}

func unpackValue(d *msgpack.Decoder) (any, error) {
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return nil, err
	case msgpcode.IsString(code):
		return d.DecodeString()
	case code == msgpcode.False || code == msgpcode.Nil:
		return nil, d.Skip()
	case code == msgpcode.True:
		return int64(1), d.Skip()
	case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
		n, err := d.DecodeArrayLen()
		return unpackValues(d, n, err)
	case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
		n, err := d.DecodeMapLen()
		return unpackValues(d, 2*n, err)
	case code == msgpcode.Float, code == msgpcode.Double:
		f, err := d.DecodeFloat64()
		return int64(math.Trunc(f)), err
	default:
		return d.DecodeInt64()
	}
}

func unpackValues(d *msgpack.Decoder, n int, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		if out[i], err = unpackValue(d); err != nil {
			return nil, err
		}
	}
	return out, nil
}
