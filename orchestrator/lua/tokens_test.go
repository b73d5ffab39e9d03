package lua

import "testing"

func TestWithoutComments(t *testing.T) {
	for in, want := range map[string]string{
		"a = 1 -- one\n":                    "a = 1\n",
		"-- all of it\na = 1\n":             "\na = 1\n",
		"a = '--' .. \"--\" -- '\n":         "a = '--' .. \"--\"\n",
		"a = 'it\\'s -- text' -- @mark\n":   "a = 'it\\'s -- text'\n",
		"#!lua flags=allow-oom\nreturn 1\n": "#!lua flags=allow-oom\nreturn 1\n",
		"return 1":                          "return 1",
	} {
		if got := withoutComments(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// All tokens together are the text.
func TestTokensAreTheText(t *testing.T) {
	texts, err := Read(Files)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		if join(tokens(text)) != text {
			t.Errorf("the tokens of %s are not its text", name)
		}
	}
}
