package shell

import (
	"encoding/json"
	"strings"
)

// Command is one line for a shell: a command, or only a note, which is a comment
// to it. A note says what has to be done elsewhere ("# in FILE: SETTING"), or why
// there is no command. The zero Command is empty.
type Command struct {
	line string // without the note
	note string // without "# "
}

// constant is text of slowray's own: since the type has no name outside, only
// untyped constants convert to it, never a variable.
type constant string

// Line makes a command line of a constant in which every %s stands for one
// value and %% for a percent sign. An unquoted # at the start of a word begins the
// note, which may be all there is.
//
// A value is written so that the shell takes it as it is. A %s may be part of a
// word, as in "dev=%s"; within quotes of the constant only numbers may stand.
// Whatever begins a word and begins with a dash would be an option to most
// programs: where the value does not say what to do about that ([Word],
// [Operand], [Path]) and no "--" comes before it, the Command is a note that says
// so. In the note a value is quoted as well: zsh runs what follows a # where
// INTERACTIVE_COMMENTS is not set.
//
// What a word is missing for is said in a note as well: an empty value that would
// be one.
//
// It panics on any other verb, on quotes that do not end, and where the values
// are not as many: mistakes in slowray, which its tests find.
func Line(format constant, values ...any) Command {
	command, note := cut(string(format))
	line, values, problem := fill(command, values, false)
	comment, values, _ := fill(note, values, true)
	if len(values) > 0 {
		panic("shell: too many values: " + string(format))
	}
	if problem != nil {
		return Command{note: problem.Error()}
	}
	return Command{line, comment}
}

// Note is c with a further note, made as Line makes one.
func (c Command) Note(format constant, values ...any) Command {
	text, values, _ := fill(string(format), values, true)
	if len(values) > 0 {
		panic("shell: too many values: " + string(format))
	}
	c.note = both(c.note, text)
	return c
}

// both joins notes.
func both(a, b string) string {
	switch {
	case a == "" || b == "":
		return a + b
	case strings.HasSuffix(a, ":"):
		return a + " " + b
	}
	return a + ", " + b
}

// Args makes a command line of words, each taken as it is.
func Args(words ...string) Command {
	quoted := make([]string, len(words))
	for i, w := range words {
		var err error
		if quoted[i], err = quote(w, i == 0); err != nil {
			return Command{note: "no command: " + err.Error()}
		}
	}
	return Command{line: strings.Join(quoted, " ")}
}

// Write is the command that writes a value and a newline into a file.
func Write(value string, file Path) Command { return write(value, Line("> %s", file)) }

// Append is the command that adds a line to a file.
func Append(value string, file Path) Command { return write(value, Line(">> %s", file)) }

// write avoids echo where it would not print the value as it is: with a
// backslash, which some take as an escape, or as an option (POSIX.1-2017, echo).
func write(value string, to Command) Command {
	if strings.Contains(value, `\`) || strings.HasPrefix(value, "-") {
		return Line(`printf '%%s\n' %s`, Word(value)).Then(to)
	}
	return Line("echo %s", value).Then(to)
}

// Then is c followed by more of the same line: a prefix such as "nsenter …" by the
// command that it runs. Where either is only a note there is no command: the
// first such note is all that is left.
func (c Command) Then(next Command) Command {
	switch {
	case c.IsZero() || next.IsNote():
		return next
	case next.IsZero() || c.IsNote():
		return c
	}
	return Command{c.line + " " + next.line, both(c.note, next.note)}
}

// String is the line as it is pasted.
func (c Command) String() string {
	switch {
	case c.note == "":
		return c.line
	case c.line == "":
		return "# " + c.note
	}
	return c.line + "   # " + c.note
}

// Parts are the command, which is empty of a note, and what it notes, without the #.
func (c Command) Parts() (line, note string) { return c.line, c.note }

// Equal says that both are the same.
func (c Command) Equal(other Command) bool { return c == other }

// Bare is the command without its note; of a note that is all there is, the note.
func (c Command) Bare() Command {
	if c.line == "" {
		return c
	}
	return Command{line: c.line}
}

// IsZero says that there is nothing.
func (c Command) IsZero() bool { return c == Command{} }

// IsNote says that there is a note and nothing to run.
func (c Command) IsNote() bool { return c.line == "" && c.note != "" }

// MarshalJSON writes the line as a string, as the report's schema has it.
func (c Command) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// UnmarshalJSON reads a line as MarshalJSON writes it: of a finding that was
// stored, or comes from another host. No line of this package has a control
// character or an invisible one: one that has becomes a note.
func (c *Command) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if !printable(text) {
		*c = Command{note: "no command, it was damaged: " + Show(text)}
		return nil
	}
	line, note := cut(text)
	*c = Command{line, strings.TrimPrefix(note, " ")}
	return nil
}

// Strings are the lines of commands.
func Strings(commands []Command) []string {
	lines := make([]string, len(commands))
	for i, c := range commands {
		lines[i] = c.String()
	}
	return lines
}
