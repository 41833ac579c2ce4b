package pool

import "strconv"

// maxCount is the largest number of workers, threads or connections that counts as one:
// the product of two of them is still a number.
const maxCount = 1 << 30

// Count is a number of workers, threads or connections as a configuration writes it; 0
// where it writes none.
func Count(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return min(max(n, 0), maxCount)
}

// Port is the number of a TCP port as a configuration writes it; 0 where it is none.
func Port(text string) int {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}
