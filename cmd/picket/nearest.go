package main

// nearest is the name that word was probably meant to be, or "".
func nearest(word string, names []string) string {
	best, bestAt := "", len(word)/2+1
	for _, n := range names {
		if d := distance(word, n); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// distance is the number of letters to change, add or drop (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
