package strict

import "strings"

// Nearest returns the name that was probably meant, if one is similar.
func Nearest(name string, names []string) (string, bool) {
	wanted := plain(name)
	best, least := "", len(wanted)/3+2 // so many letters differ in another name
	for _, n := range names {
		if d := difference(wanted, n); d < least {
			best, least = n, d
		}
	}
	return best, best != ""
}

// difference says how unlike a plain name and another name are. Words that the
// plain name leaves out at either end count for little, as in "timeout" for
// "cell_timeout_ms".
func difference(wanted, name string) int {
	least := distance(wanted, plain(name))
	words := strings.Split(name, "_")
	for i := range words {
		for j := i + 1; j <= len(words); j++ {
			if part := strings.Join(words[i:j], ""); len(part) >= 3 && len(wanted) >= 3 {
				least = min(least, distance(wanted, plain(part))+1)
			}
		}
	}
	return least
}

// plain ignores the case and how words are joined.
func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance counts the letters to insert, remove or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
