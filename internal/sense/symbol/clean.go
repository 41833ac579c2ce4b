package symbol

import "github.com/slowray/slowray/internal/printable"

// maxName bounds a name, in bytes.
const maxName = 1024

// clean makes a name that others wrote fit to be shown, and says when it is longer.
func clean(name string) string {
	if len(name) > maxName {
		return printable.Name(name, maxName) + "…"
	}
	return printable.Name(name, maxName)
}
