package settings

import (
	"fmt"
	"strconv"
)

// Share is a part of a whole, more than 0 and at most 1.
type Share float64

// UnmarshalText reads a number such as 0.8.
func (s *Share) UnmarshalText(text []byte) error {
	n, err := parseShare(string(text))
	*s = Share(n)
	return err
}

// String returns the number as it is written in picket.yaml.
func (s Share) String() string { return strconv.FormatFloat(float64(s), 'g', -1, 64) }

func checkShare(text string) error {
	_, err := parseShare(text)
	return err
}

func parseShare(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0 && n <= 1) {
		return 0, fmt.Errorf("%q is not a share above 0 and up to 1, such as 0.8", text)
	}
	return n, nil
}
