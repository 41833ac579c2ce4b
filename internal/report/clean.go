package report

// Clean makes text from the watched host safe to print on a terminal: control
// characters, invisible ones and invalid UTF-8 become a replacement character.
func Clean(s string) string { return clean(s) }
