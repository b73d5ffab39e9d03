package devredis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/picket-dev/picket/internal/files"
)

// A redis-server that was killed in the middle of writing a transaction cuts off the incomplete
// command at its next start. It keeps the earlier commands of the same transaction: an open MULTI,
// which swallows everything that is written after it. So the whole unfinished transaction is cut
// off before it starts. Nobody was ever told that it had happened.

// cutUnfinishedTransaction cuts an unfinished transaction off the end of the newest file in
// dir. Whatever else may be wrong with it is for the redis-server to refuse.
func cutUnfinishedTransaction(dir string, log *slog.Logger) error {
	path, err := newestAppendFile(dir)
	if err != nil || path == "" {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	whole, size, err := completeSize(f)
	if err != nil || whole == size {
		return err
	}
	log.Warn("an unfinished transaction was cut off: the store was killed while it wrote", "file", path, "bytes",
		size-whole)
	return files.Truncate(f, whole)
}

// newestAppendFile is the file that the manifest names last; empty without one.
func newestAppendFile(dir string) (string, error) {
	manifests, err := filepath.Glob(filepath.Join(dir, appendOnlyDir, "*.manifest"))
	if err != nil || len(manifests) == 0 {
		return "", err
	}
	text, err := os.ReadFile(manifests[0])
	if err != nil {
		return "", err
	}
	last := ""
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line) // file NAME seq N type b|h|i
		if at := slices.Index(words, "file"); at >= 0 && at+1 < len(words) && words[len(words)-1] == "i" {
			last = filepath.Join(dir, appendOnlyDir, filepath.Base(words[at+1]))
		}
	}
	return last, nil
}

var errTruncated = errors.New("the file ends in the middle of a command")

// completeSize reads commands and answers the size of the part that ends with a
// finished transaction. A file that is damaged otherwise counts as whole.
func completeSize(f *os.File) (whole, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	in := bufio.NewReaderSize(f, 1<<20)
	at, open := int64(0), false
	for {
		n, word, err := readCommand(in)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errTruncated):
			return whole, info.Size(), nil
		case err != nil:
			return info.Size(), info.Size(), nil
		}
		at += n
		switch word {
		case "MULTI":
			open = true
		case "EXEC":
			open = false
		}
		if !open {
			whole = at
		}
	}
}

// readCommand reads one command and answers its length and its first word.
func readCommand(in *bufio.Reader) (n int64, word string, err error) {
	count, n, err := readLength(in, '*')
	if err != nil {
		return 0, "", err
	}
	for i := range count {
		length, m, err := readLength(in, '$')
		if errors.Is(err, io.EOF) {
			err = errTruncated
		}
		if err != nil {
			return 0, "", err
		}
		n += m + length + 2
		if i == 0 && length <= 16 {
			first := make([]byte, length+2)
			if _, err := io.ReadFull(in, first); err != nil {
				return 0, "", errTruncated
			}
			word = strings.ToUpper(string(first[:length]))
			continue
		}
		if skipped, err := in.Discard(int(length + 2)); err != nil || int64(skipped) != length+2 {
			return 0, "", errTruncated
		}
	}
	return n, word, nil
}

// readLength reads a line such as *3 or $5.
func readLength(in *bufio.Reader, kind byte) (value, n int64, err error) {
	line, err := in.ReadString('\n')
	if errors.Is(err, io.EOF) && line != "" {
		return 0, 0, errTruncated
	}
	if err != nil {
		return 0, 0, err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || text == "" || text[0] != kind {
		return 0, 0, fmt.Errorf("%q is not a %c line", line, kind)
	}
	value, err = strconv.ParseInt(text[1:], 10, 64)
	if err != nil || value < 0 || value > 1<<31 {
		return 0, 0, fmt.Errorf("%q is not a length", line)
	}
	return value, int64(len(line)), nil
}
