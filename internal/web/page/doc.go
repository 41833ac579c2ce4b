// Package page is the page that slowray record --listen serves, and that of
// slowray fleet page, which shares its style and scripts: plain JavaScript modules,
// styles and an HTML file for each, embedded.
//
// In: nothing; the page reads docs/api.md's answers from where it was
// loaded. Out: its files, and the policy that keeps it to them. It never loads
// anything from elsewhere, and shows names from the host as text only.
package page

import (
	"embed"
	"io/fs"
)

//go:embed index.html fleet.html assets
var files embed.FS

// Files has index.html, or for the fleet fleet.html, which is served at /, and assets/,
// served at /assets/.
var Files fs.FS = files

// Policy is the Content-Security-Policy to serve index.html with. Pictures are
// drawn from data: and blob: when one is saved as PNG.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
