package main

import (
	"cmp"
	"os"

	"github.com/slowray/slowray/internal/language"
)

// languageFlag is of the commands that print a report.
type languageFlag struct {
	Lang string `enum:",en,zh" default:"" placeholder:"L" help:"Language of the report: en or zh (simplified Chinese). Otherwise that of LC_ALL, LC_MESSAGES or LANG. JSON is always English."`
}

// language is that of the reader: what the flag says, or else the environment.
func (f *languageFlag) language() (*language.Language, error) {
	return language.New(cmp.Or(f.Lang, language.OfEnvironment(os.Getenv)))
}
